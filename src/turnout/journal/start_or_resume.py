"""Starting a journal, or going on with one: what is there is checked first, then taken back to its checkpoints."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from turnout.checkpoint import Stored, verify
from turnout.errors import JournalError
from turnout.journal.changed_data import Data, with_changes, without_digests
from turnout.journal.checksums import broken, checksum_of, seal
from turnout.journal.schema import FILE, TABLES, VERSION, check_version, transaction

FREE = ("checkpoint", "track", "target")  # settings that change no run


class Told(NamedTuple):
    """What the journal is told of a study, as it is kept."""

    name: str
    config: str  # JSON
    facts: str  # JSON


def fill(database: sqlite3.Connection, study: Told) -> None:
    """Make the tables of a new journal, and tell it of its study."""
    with transaction(database, "BEGIN IMMEDIATE"):
        for statement in TABLES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("INSERT INTO study (name, config, facts) VALUES (?, ?, ?)", study)
        seal(database, "study")


class Earlier(NamedTuple):
    """The facts of a study that goes on."""

    facts: dict[str, Any]  # as they were
    noted: dict[str, Any]  # with a note of each run whose data has changed


def check_can_go_on(database: sqlite3.Connection, folder: Path, study: Told, data: Data) -> Earlier:
    """Raise unless a folder holds the same study, undamaged, on the same data; nothing is written."""
    check_version(database, str(folder / FILE))
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    _check_sound(database, folder)
    name, config, facts = database.execute("SELECT name, config, facts FROM study").fetchone()
    difference = _difference((name, json.loads(config)), (study.name, json.loads(study.config)))
    if difference:
        raise JournalError(
            f"{folder} already holds {difference}; nothing was changed. Choose another folder with --out."
        )
    earlier: dict[str, Any] = json.loads(facts)
    return Earlier(earlier, with_changes(database, earlier, data, f"{folder}: nothing was changed, for"))


def go_on(database: sqlite3.Connection, study: Told, earlier: Earlier) -> None:
    """Take out the rounds after the checkpoints, and add how the study is run now."""
    with transaction(database, "BEGIN IMMEDIATE"):
        _rewind(database)
        both = json.dumps(earlier.noted | json.loads(study.facts))
        database.execute("UPDATE study SET config = ?, facts = ?", (study.config, both))
        seal(database, "study")


def files_of(database: sqlite3.Connection) -> list[Stored]:
    """Return every file the journal vouches for."""
    return [Stored(*row) for row in database.execute("SELECT name, sha256, bytes FROM file ORDER BY name")]


def _check_sound(database: sqlite3.Connection, folder: Path) -> None:
    try:
        damage = broken(database)
    except sqlite3.DatabaseError as error:
        damage = str(error)
    if damage is not None:
        raise JournalError(
            f"{folder / FILE} is damaged ({damage}); nothing was changed. "
            "Bring back a good copy of the folder, or run the study again in another folder with --out."
        )
    for stored in files_of(database):
        verify(folder, stored)


def _rewind(database: sqlite3.Connection) -> None:
    """Take out the rounds that came after the last checkpoint: they are run again."""
    database.execute(
        "DELETE FROM round WHERE run IN (SELECT id FROM run WHERE status != 'finished') AND round > coalesce("
        "(SELECT checkpoint.round FROM checkpoint JOIN run ON run.party = checkpoint.party WHERE run.id = round.run), "
        "-1)"
    )


def _difference(old: tuple[str, dict[str, Any]], new: tuple[str, dict[str, Any]]) -> str | None:
    if old[0] != new[0]:
        return f"another study, {old[0]!r}"
    before, now = without_digests(old[1]), without_digests(new[1])
    keys = sorted({*before, *now} - set(FREE))
    changed = [key for key in keys if before.get(key) != now.get(key)]
    return f"the study {old[0]!r} with other settings ({', '.join(changed)})" if changed else None
