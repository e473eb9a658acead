"""Data that changed since a study began: found by digests, refused, or noted where the user accepts it."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from turnout.errors import JournalError
from turnout.journal.codec import decode_counts

CHANGED = "changed_data"  # the fact that says which runs went on with other data than they began with


class Data(NamedTuple):
    """The data of some runs as it is now."""

    digests: Mapping[tuple[str, int], str] = {}  # by arm and seed
    is_accepted: bool = False  # whether a study may go on with data that has changed
    num_runs: int | None = None  # of the whole study: one of which all are finished does not look at its data again


NO_DATA = Data()


def with_changes(database: sqlite3.Connection, facts: dict[str, Any], data: Data, where: str) -> dict[str, Any]:
    """Return the facts with a note of each run whose data has changed; raise where that is not accepted."""
    finished = database.execute("SELECT count(*) FROM run WHERE status = 'finished'").fetchone()[0]
    if finished == data.num_runs:
        return facts
    noted = list(facts.get(CHANGED, ()))
    known = {(note["arm"], note["seed"], note["now"]) for note in noted}
    for (arm, seed), now in data.digests.items():
        begun = database.execute("SELECT data FROM run WHERE arm = ? AND seed = ?", (arm, seed)).fetchone()
        if begun is None or begun[0] in (None, now) or (arm, seed, now) in known:
            continue
        if not data.is_accepted:
            raise JournalError(
                f"{where} the data of arm {arm!r} with seed {seed} is not what it began with: its digest was "
                f"{begun[0]} and is {now}. Bring the data back, run the study again in another folder with --out, or "
                "go on with --accept-changed-data (accept_changed_data=True in Python), which is noted."
            )
        noted.append({"arm": arm, "seed": seed, "before": begun[0], "now": now})
    return facts | ({CHANGED: noted} if noted else {})


def check_clients(database: sqlite3.Connection, folder: Path | None, run: int, now: int) -> None:
    """Raise if a run that goes on has more or fewer clients than it began with: its checkpoint is of those."""
    query = "SELECT arm, seed, body FROM run JOIN array ON array.id = run.sizes WHERE run.id = ?"
    for arm, seed, body in database.execute(query, (run,)):
        before = len(decode_counts(body))
        if before != now:
            raise JournalError(
                f"{folder}: arm {arm!r} with seed {seed} began with {before} clients and its data has {now} now, so it "
                "cannot go on. Run the study again in another folder with --out."
            )


def without_digests(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the digests of federations made in Python: data is compared run by run."""
    plain: dict[str, Any] = dict(config)
    if "arm" in plain:
        plain["arm"] = [without_digests(arm) for arm in plain["arm"]]
    if isinstance(plain.get("data"), dict):
        plain["data"] = {key: value for key, value in plain["data"].items() if key != "digest"}
    return plain
