"""How far a study is: its name, its settings and the progress of each run, read in two short queries."""

import sqlite3
from typing import NamedTuple

RUNS = """
SELECT arm, rounds, status, started,
    (SELECT max(round.round) FROM round WHERE round.run = run.id),
    (SELECT accuracy FROM round WHERE round.run = run.id AND accuracy IS NOT NULL ORDER BY round.round DESC LIMIT 1)
FROM run
"""


class RunProgress(NamedTuple):
    """How far one run is, as stored: an untrusted journal may hold any value in any column."""

    arm: str
    rounds: int  # that the run is to have
    status: str
    started: str  # UTC, ISO 8601
    last_round: int | None  # None: no round is recorded
    accuracy: float | None  # the last that was measured; None: none was


class StudyProgress(NamedTuple):
    """How far a study is."""

    name: str
    config: str  # JSON
    runs: list[RunProgress]


def read_progress(database: sqlite3.Connection) -> StudyProgress:
    """Return how far a study is."""
    name, config = database.execute("SELECT name, config FROM study").fetchone()
    return StudyProgress(name, config, [RunProgress(*row) for row in database.execute(RUNS)])
