"""Detect data that changed since a study began: compare digests, then refuse, or record the change if accepted."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from turnout.errors import JournalError
from turnout.journal.codec import decode_counts

CHANGED = "changed_data"  # the key under which the study's facts list the runs that resumed on changed data


class Data(NamedTuple):
    """Digests of the data that runs have now."""

    digests: Mapping[tuple[str, int], str] = {}  # by arm and seed
    is_accepted: bool = False  # whether a study may resume on data that has changed
    num_runs: int | None = None  # in the whole study; if all of them are finished, the data is not checked


NO_DATA = Data()


def with_changes(database: sqlite3.Connection, facts: dict[str, Any], data: Data, where: str) -> dict[str, Any]:
    """Return the facts with an entry for each run whose data changed; raise if changes are not accepted."""
    finished = database.execute("SELECT count(*) FROM run WHERE status = 'finished'").fetchone()[0]
    if finished == data.num_runs:
        return facts
    changes = list(facts.get(CHANGED, ()))
    recorded = {(change["arm"], change["seed"], change["now"]) for change in changes}
    for (arm, seed), now in data.digests.items():
        row = database.execute("SELECT data FROM run WHERE arm = ? AND seed = ?", (arm, seed)).fetchone()
        before = None if row is None else row[0]
        if before in (None, now) or (arm, seed, now) in recorded:
            continue
        if not data.is_accepted:
            raise JournalError(
                f"{where} the data of arm {arm!r} with seed {seed} is not what it began with: its digest was "
                f"{before} and is {now}. Bring the data back, run the study again in another output folder, or "
                "go on with --accept-changed-data (accept_changed_data=True in Python), which is noted."
            )
        changes.append({"arm": arm, "seed": seed, "before": before, "now": now})
    return facts | ({CHANGED: changes} if changes else {})


def check_clients(database: sqlite3.Connection, folder: Path | None, run: int, now: int) -> None:
    """Raise if a run resumes with another number of clients than it began with: its checkpoint would not fit."""
    query = "SELECT arm, seed, body FROM run JOIN array ON array.id = run.sizes WHERE run.id = ?"
    for arm, seed, body in database.execute(query, (run,)):
        before = len(decode_counts(body))
        if before != now:
            raise JournalError(
                f"{folder}: arm {arm!r} with seed {seed} began with {before} clients and its data has {now} now, so it "
                "cannot go on. Run the study again in another output folder."
            )


def without_digests(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without the digests of federations made in Python: data is compared per run instead."""
    settings: dict[str, Any] = dict(config)
    if "arm" in settings:
        settings["arm"] = [without_digests(arm) for arm in settings["arm"]]
    if isinstance(settings.get("data"), dict):
        settings["data"] = {key: value for key, value in settings["data"].items() if key != "digest"}
    return settings
