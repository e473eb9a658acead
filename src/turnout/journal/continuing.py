"""Starting a journal, or going on with one: what is there is checked first, then taken back to its checkpoints."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from turnout.checkpoint import Stored, verify
from turnout.errors import JournalError
from turnout.journal.schema import FILE, TABLES, VERSION, is_empty, transaction
from turnout.journal.sealing import broken, seal

FREE = ("checkpoint", "track")  # settings that change nothing in what is found


def start(database: sqlite3.Connection, folder: Path | None, study: tuple[str, str, str]) -> dict[str, Any] | None:
    """Make the tables; or check what the same study left, and take out the rounds after its checkpoints.

    Returns the facts that were there; None where the study has just begun.
    """
    with transaction(database, "BEGIN IMMEDIATE"):
        if is_empty(database):
            for statement in TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("INSERT INTO study (name, config, facts) VALUES (?, ?, ?)", study)
            seal(database, "study")
            return None
        assert folder is not None
        _check_sound(database, folder)
        name, config, facts = database.execute("SELECT name, config, facts FROM study").fetchone()
        difference = _difference((name, json.loads(config)), (study[0], json.loads(study[1])))
        if difference:
            raise JournalError(
                f"{folder} already holds {difference}; nothing was changed. Choose another folder with --out."
            )
        _rewind(database)
        earlier: dict[str, Any] = json.loads(facts)
        both = json.dumps(earlier | json.loads(study[2]))
        database.execute("UPDATE study SET config = ?, facts = ?", (study[1], both))
        seal(database, "study")
        return earlier


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
    keys = sorted({*old[1], *new[1]} - set(FREE))
    changed = [key for key in keys if old[1].get(key) != new[1].get(key)]
    return f"the study {old[0]!r} with other settings ({', '.join(changed)})" if changed else None
