"""Start a journal, or resume one: check that it is sound and of the same study, then rewind it to its checkpoints."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from turnout.checkpoint import Stored, verify
from turnout.errors import JournalError
from turnout.journal.changed_data import Data, with_changes, without_digests
from turnout.journal.checksums import checksum_of, find_damage, update_checksums
from turnout.journal.schema import FILE, TABLES, VERSION, check_version, transaction

FREE_SETTINGS = ("checkpoint", "track", "target")  # settings that change no run and may differ when a study resumes


class StudyRow(NamedTuple):
    """A study as the journal stores it."""

    name: str
    config: str  # JSON
    facts: str  # JSON


def create_tables(database: sqlite3.Connection, study: StudyRow) -> None:
    """Create the tables of a new journal, and store the study."""
    with transaction(database, "BEGIN IMMEDIATE"):
        for statement in TABLES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("INSERT INTO study (name, config, facts) VALUES (?, ?, ?)", study)
        update_checksums(database, "study")


class EarlierFacts(NamedTuple):
    """The facts that the journal of a resumed study holds."""

    facts: dict[str, Any]  # as stored
    with_changes: dict[str, Any]  # and with an entry for each run whose data has changed


def check_can_resume(database: sqlite3.Connection, folder: Path, study: StudyRow, data: Data) -> EarlierFacts:
    """Return the stored facts; raise unless the folder holds the same study, undamaged, on the same data."""
    check_version(database, str(folder / FILE))
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    _check_sound(database, folder)
    name, config, facts = database.execute("SELECT name, config, facts FROM study").fetchone()
    difference = _difference((name, json.loads(config)), (study.name, json.loads(study.config)))
    if difference:
        raise JournalError(f"{folder} already holds {difference}; nothing was changed. Choose another output folder.")
    earlier: dict[str, Any] = json.loads(facts)
    return EarlierFacts(earlier, with_changes(database, earlier, data, f"{folder}: nothing was changed, for"))


def rewind(database: sqlite3.Connection, study: StudyRow, earlier: EarlierFacts) -> None:
    """Delete the rounds after the last checkpoints, and store the study's settings and facts of now."""
    with transaction(database, "BEGIN IMMEDIATE"):
        _delete_unsaved_rounds(database)
        facts = json.dumps(earlier.with_changes | json.loads(study.facts))
        database.execute("UPDATE study SET config = ?, facts = ?", (study.config, facts))
        update_checksums(database, "study")


def files_of(database: sqlite3.Connection) -> list[Stored]:
    """Return every file that the journal refers to, with its checksum and size."""
    return [Stored(*row) for row in database.execute("SELECT name, sha256, bytes FROM file ORDER BY name")]


def _check_sound(database: sqlite3.Connection, folder: Path) -> None:
    try:
        damage = find_damage(database)
    except sqlite3.DatabaseError as error:
        damage = str(error)
    if damage is not None:
        raise JournalError(
            f"{folder / FILE} is damaged ({damage}); nothing was changed. "
            "Bring back a good copy of the folder, or run the study again in another output folder."
        )
    for stored in files_of(database):
        verify(folder, stored)


def _delete_unsaved_rounds(database: sqlite3.Connection) -> None:
    """Delete the rounds of unfinished runs that came after their last checkpoint; they run again."""
    database.execute(
        "DELETE FROM round WHERE run IN (SELECT id FROM run WHERE status != 'finished') AND round > coalesce("
        "(SELECT checkpoint.round FROM checkpoint JOIN run ON run.run_group = checkpoint.run_group "
        "WHERE run.id = round.run), -1)"
    )


def _difference(old: tuple[str, dict[str, Any]], new: tuple[str, dict[str, Any]]) -> str | None:
    if old[0] != new[0]:
        return f"another study, {old[0]!r}"
    before, now = without_digests(old[1]), without_digests(new[1])
    keys = sorted({*before, *now} - set(FREE_SETTINGS))

    changed = [key for key in keys if before.get(key) != now.get(key)]
    return f"the study {old[0]!r} with other settings ({', '.join(changed)})" if changed else None
