"""Read a run of a journal as a recording that a fleet can replay."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from turnout.array_types import Floats
from turnout.errors import JournalError
from turnout.fleet.replay import Jobs, Packed, Recording
from turnout.journal.codec import decode_clients, decode_mask
from turnout.journal.load import Loaded, load
from turnout.journal.locking import is_being_written
from turnout.journal.open_database import LOG
from turnout.journal.read_rounds import RoundClients
from turnout.journal.schema import FILE
from turnout.requests import Outcome
from turnout.untrusted_input import as_written

LONGER = 1 + 1e-6  # work that had not ended by a time took longer


def read_run(folder: str | Path, arm: str | None = None, seed: int | None = None) -> Recording:
    """Read a recorded run; an unchanged folder is read once.

    Args:
        folder: where `turnout run` or a deployment wrote its journal.
        arm: the run's arm; None is the only one.
        seed: the run's seed; None is the only one.
    """
    path = Path(folder).expanduser()
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):  # a name that no folder can have
        is_folder = False
    if not is_folder:
        raise JournalError(f"There is no folder {folder}. Name the folder that turnout run wrote to.")
    if is_being_written(path):
        raise JournalError(
            f"{folder} is being written, and a replay of it would change as it grows. "
            "Wait for the run to end, or replay a copy of the folder."
        )
    return _read(path, _stamp(path), arm, seed)


def _stamp(folder: Path) -> tuple[tuple[int, int], ...]:
    """Return the times and sizes of a journal's files; the same unless it was written in between."""
    files = [folder / name for name in (FILE, LOG)]
    stats = [file.stat() for file in files if file.is_file()]
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)


@lru_cache(maxsize=8)
def _read(folder: Path, stamp: tuple[tuple[int, int], ...], arm: str | None, seed: int | None) -> Recording:
    return recording_in(load(folder), arm, seed)


def recording_in(loaded: Loaded, arm: str | None = None, seed: int | None = None) -> Recording:
    """Return a run of a loaded journal as a recording."""
    arm, seed = _one(loaded, arm, seed)
    where = f"arm {arm!r} with seed {seed} of {loaded.source}"
    rounds = loaded.rounds[(loaded.rounds["arm"] == arm) & (loaded.rounds["seed"] == seed)]
    if rounds["round"].max() < 1 or not rounds["asked"].any():
        raise JournalError(
            f"A replay needs at least one round in which a client was asked; {where} has none. Name another run."
        )
    with as_written(f"The journal in {loaded.source}"):
        numbers = rounds["round"].tolist()
        if numbers != list(range(len(numbers))):
            raise ValueError("rounds that do not follow one another")
        tables = list(loaded.round_clients(arm, seed))
        clients = int(rounds["num_clients"].iloc[0])
        if any(table.num_clients != clients for table in tables) or len(tables) != len(numbers):
            raise ValueError("rounds of different clients")
        (planned,) = loaded.runs[(loaded.runs["arm"] == arm) & (loaded.runs["seed"] == seed)]["rounds"]
        return Recording(
            name=where,
            num_clients=clients,
            planned_rounds=int(planned),
            up=np.stack([_packed(table.up, clients) for table in tables[1:]]),
            members=_members(tables, clients),
            jobs=_jobs(tables, rounds["sim_seconds"].to_numpy()),
        )


def _one(loaded: Loaded, arm: str | None, seed: int | None) -> tuple[str, int]:
    """Return the arm and the seed that are meant; raise if none or several are."""
    runs: Any = loaded.runs if arm is None else loaded.runs[loaded.runs["arm"] == arm]
    runs = runs if seed is None else runs[runs["seed"] == seed]
    if len(runs) == 1:
        return str(runs["arm"].iloc[0]), int(runs["seed"].iloc[0])
    asked = f"arm = {arm or 'none'}, seed = {'none' if seed is None else seed}"
    raise JournalError(
        f"A replay needs one run; {loaded.source} has {len(runs)} of {asked}. "
        f"It has {_listed(loaded.runs)}. Set arm and seed to one of them."
    )


def _listed(runs: pd.DataFrame) -> str:
    """Return the arms and seeds of a journal as text."""
    if runs.empty:
        return "no runs"
    arms = [f"{arm} (seed {', '.join(map(str, group['seed']))})" for arm, group in runs.groupby("arm", sort=False)]
    return "; ".join(arms)


def _packed(blob: bytes, num_clients: int) -> Packed:
    return np.packbits(decode_mask(blob, num_clients))


def _members(tables: list[RoundClients], num_clients: int) -> Packed | None:
    """Return who belonged in each round, as bits; None where it was always everyone."""
    if all(table.members is None for table in tables):
        return None
    everyone = np.packbits(np.ones(num_clients, dtype=np.bool_))
    return np.stack([everyone if table.members is None else _packed(table.members, num_clients) for table in tables])


def _jobs(tables: list[RoundClients], sim_seconds: Floats) -> Jobs:
    """Return what became of all work; work that ended in a later round counts for the round that handed it out."""
    parts = [_facts(table, float(sim_seconds[table.round])) for table in tables if table.asked is not None]
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((table["rounds"], table["clients"]))
    table = {name: values[order] for name, values in table.items()}
    began = np.flatnonzero(table["at_work"])
    last = len(order) - 1
    ended = np.minimum(began + 1, last)  # a client's next entry is the end of its work
    has_ended = (ended > began) & (table["clients"][ended] == table["clients"][began])
    for name in ("progress", "seconds", "cut_off"):
        table[name][began[has_ended]] = table[name][ended[has_ended]]
    never, ends = began[~has_ended], np.cumsum(sim_seconds)  # at work when the recording ended: it took longer
    table["cut_off"][never] = True
    table["seconds"][never] = (ends[-1] - ends[table["rounds"][never] - 1]) * LONGER
    keep = np.ones(len(order), dtype=np.bool_)
    keep[ended[has_ended]] = False
    return Jobs(**{name: values[keep] for name, values in table.items() if name != "at_work"})


def _facts(table: RoundClients, round_seconds: float) -> dict[str, Any]:
    """Return the work of those asked in a round; a late client of unknown time took longer than the round."""
    assert table.asked is not None
    told = decode_clients(table.asked, table.num_clients, table.num_asked)
    unknown = (told["outcome"] == Outcome.LATE) & ~np.isfinite(told["seconds"])
    return {
        "clients": told["client"],
        "rounds": np.full(len(told["client"]), table.round),
        "asked": told["asked_steps"],
        "progress": np.where(unknown, 0, told["progress"]),
        "seconds": np.where(unknown, round_seconds * LONGER, told["seconds"]),
        "cut_off": told["cut_off"] | unknown,
        "at_work": told["outcome"] == Outcome.AT_WORK,
    }
