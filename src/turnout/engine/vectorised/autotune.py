"""How to run a group of clients on this machine: chosen by a short measurement, not by guess, and remembered.

The choice changes speed only: results agree up to float rounding whatever is chosen.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from turnout.untrusted_input import count_of

CACHE_BYTES = (2 << 20, 8 << 20, 64 << 20)  # what a block's rows may take to stay close
FEW_ROWS, MOST_BYTES = 256, 256 << 20  # up to here one block, or one a core, is worth a try: fewer operations
SMALL_BYTES = 256 << 10  # of a row
BUDGET_SECONDS = 4.0
TURNS = 8
NEAR_AT_FIRST, NEAR = 1.6, 1.2  # times as long as the fastest, and still in: more while little was seen
USUAL_THREADS = torch.get_num_threads()  # before anyone changed it: what OMP_NUM_THREADS says, or all cores
MOST_OF = {"block": 1 << 31, "workers": 4096, "threads": 4096}  # that are believed of a journal


@dataclass(frozen=True, slots=True)
class Execution:
    """One way to run: rows stacked in blocks or clients one by one, on workers with so many operation threads."""

    stacked: bool
    block: int  # rows in a block
    workers: int
    threads: int  # operation threads of each worker
    pixels_last: bool = False  # one by one: images with their channels side by side

    def describe(self) -> str:
        """Say it in a few words."""
        how = f"blocks of {self.block}" if self.stacked else "one by one"
        last = ", pixels last" * self.pixels_last
        return f"{how}, {self.workers} worker{'s' * (self.workers > 1)} x {self.threads} threads{last}"


def execution_of(known: Mapping[str, Any]) -> Execution:
    """Return a way that a journal remembers; raises a LookupError, TypeError or ValueError for what is none."""
    counts = {name: count_of(known[name], name, most, least=1) for name, most in MOST_OF.items()}
    return Execution(known["stacked"] is True, **counts, pixels_last=known["pixels_last"] is True)


def candidates(
    rows: int, row_bytes: int, can_stack: bool, cores: int, threads: int, of_images: bool = False
) -> list[Execution]:
    """Return the ways worth trying; those that are never far off come first, in case time runs out."""
    alone = (
        [Execution(False, 1, cores, 1), Execution(False, 1, 1, threads)] if cores > 1 else [Execution(False, 1, 1, 1)]
    )
    if of_images:
        alone = [Execution(False, 1, cores, 1, pixels_last=True), *alone]
    stacked: list[Execution] = []
    if can_stack:
        fits = rows <= FEW_ROWS and rows * row_bytes <= MOST_BYTES
        sizes = (*CACHE_BYTES, MOST_BYTES) if fits else CACHE_BYTES
        blocks = sorted({max(1, min(rows, size // max(row_bytes, 1))) for size in sizes})
        for block in blocks:
            stacked.append(Execution(True, block, 1, 1))
            if cores > 1:
                stacked.append(Execution(True, block, 1, threads))
                if block < rows:
                    stacked.append(Execution(True, block, cores, 1))
        if cores > 1 and 2 * cores <= rows <= blocks[-1]:
            stacked.append(Execution(True, -(-rows // cores), cores, 1))
    if not stacked:
        return alone
    stacked = [replace(execution, block=evenly(rows, execution)) for execution in stacked]
    if row_bytes <= SMALL_BYTES and not of_images:  # convolutions do not stack well
        return list(dict.fromkeys(stacked))
    first = 1 + of_images
    return list(dict.fromkeys([*alone[:first], *stacked, *alone[first:]]))


def evenly(rows: int, execution: Execution) -> int:
    """Return the rows of a block, at most the way's, such that every worker has as many blocks as the others."""
    blocks = -(-rows // execution.block)
    turns = -(-blocks // execution.workers)
    return max(1, min(execution.block, -(-rows // (turns * execution.workers))))


def choose(
    executions: list[Execution], measure: Callable[[Execution, int], float]
) -> tuple[Execution, dict[str, float]]:
    """Return the fastest way by trying each, within the budget, and the seconds per client-step each took.

    A first try of one step pays for buffers, two of two steps weed out what is slow. The others are timed in turns,
    the least of each counts, and after every turn those go that are far behind: a noisy moment does not decide.
    """
    started = time.perf_counter()
    seconds: dict[Execution, float] = {}
    for execution in executions:
        first = measure(execution, 1)
        if not seconds or first < 4 * min(seconds.values()):
            seconds[execution] = measure(execution, 2)
        if time.perf_counter() - started > BUDGET_SECONDS / 2:
            break
    near = _near(seconds, NEAR_AT_FIRST)
    for execution in [each for each in seconds if each not in near]:  # once more: a sample may be wrong by any factor
        if time.perf_counter() - started < BUDGET_SECONDS / 2:
            seconds[execution] = min(measure(execution, 2), seconds[execution])
    left = _near(seconds, NEAR_AT_FIRST)
    finals: dict[Execution, float] = {}
    for _ in range(TURNS):
        if len(left) < 2 or time.perf_counter() - started > BUDGET_SECONDS:
            break
        for execution in left:
            finals[execution] = min(measure(execution, 8), finals.get(execution, math.inf))
        left = _near({execution: finals[execution] for execution in left}, NEAR)
    seconds |= finals
    return left[0], {execution.describe(): round(value, 5) for execution, value in seconds.items()}


def _near(seconds: Mapping[Execution, float], within: float) -> list[Execution]:
    """Return the ways that take at most so many times as long as the fastest, fastest first."""
    cost = _handicapped(seconds)
    ranked = sorted(seconds, key=cost)
    return [execution for execution in ranked if cost(execution) <= within * cost(ranked[0])]


def _handicapped(seconds: Mapping[Execution, float]) -> Callable[[Execution], float]:
    """Operation threads wait for each other and suffer when anything else takes a core: they must win clearly."""
    return lambda execution: seconds[execution] * (1.1 if execution.threads > 1 else 1.0)


class Remembered:
    """Choices kept in a small file beside other caches, by machine and model."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / "tuning.json"
        self.known: dict[str, Execution] = {}
        try:
            stored = json.loads(self.path.read_text())
            self.known = {key: execution_of(execution) for key, execution in stored.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            self.known = {}  # a cache that cannot be read is measured again

    def put(self, key: str, execution: Execution) -> None:
        """Remember a choice; a folder that cannot be written is no reason to stop."""
        self.known[key] = execution
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps({k: asdict(w) for k, w in self.known.items()}, indent=1))
            scratch.replace(self.path)
        except OSError:
            return


def cache_folder() -> Path:
    """Return where turnout keeps what it can make again."""
    named = os.environ.get("TURNOUT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "turnout"


@lru_cache(maxsize=1)
def processor() -> str:
    """Return the model of this machine's processor."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        return model


@lru_cache(maxsize=1)
def machine() -> str:
    """Return a short name of this machine's kind."""
    return f"{processor()}, {cores()} cores, {most_threads()} threads, torch {torch.__version__}"


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def most_threads() -> int:
    """Return how many threads one operation may use: who runs several studies at once sets OMP_NUM_THREADS=1.

    Threads of an operation wait for each other. Where another process has the core of one of them, all of them wait
    until it is back, at every operation: measuring a small network took five times as long as with one thread.
    """
    return min(cores(), USUAL_THREADS)


def tuning_key(*parts: object) -> str:
    """Return a short key for a combination of machine, model and work."""
    return blake2b(repr((machine(), *parts)).encode(), digest_size=12).hexdigest()
