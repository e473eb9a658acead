"""How to run a group of clients on this machine: chosen by a short measurement, not by guess, and remembered.

The choice changes speed only: results agree up to float rounding whatever is chosen.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from turnout.untrusted_input import count_of

CACHE_BYTES = (2 << 20, 8 << 20, 64 << 20)  # what a block's rows may take to stay close
FEW_ROWS, MOST_BYTES = 256, 256 << 20  # up to here one block, or one a core, is worth a try: fewer operations
SMALL_BYTES, LARGE_BYTES = 256 << 10, 2 << 20  # of a row
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
        how = f"stacked, blocks of {self.block}" if self.stacked else "one by one"
        threads = f" with {self.threads} threads" * (self.threads > 1)
        last = ", pixels last" * self.pixels_last
        return f"{how}, {self.workers} worker{'s' * (self.workers > 1)}{threads}{last}"


def execution_of(known: Mapping[str, Any]) -> Execution:
    """Return a way that a journal remembers; raises a LookupError, TypeError or ValueError for what is none."""
    counts = {name: count_of(known[name], name, most, least=1) for name, most in MOST_OF.items()}
    return Execution(known["stacked"] is True, **counts, pixels_last=known["pixels_last"] is True)


def candidates(
    rows: int, row_bytes: int, can_stack: bool, cores: int, threads: int, of_images: bool = False
) -> list[Execution]:
    """Return the ways worth trying; those that are never far off come first, in case time runs out."""
    alone = [Execution(False, 1, 1, 1)]  # workers wait for each other's Python where operations are short
    if cores > 1:
        alone = [Execution(False, 1, cores, 1), *alone, Execution(False, 1, 1, threads)]
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


def guess(rows: int, row_bytes: int, can_stack: bool, cores: int, of_images: bool) -> Execution:
    """Return the way that shapes suggest.

    Convolutions, and rows of more than 2 MiB (half a million parameters), keep a core busy alone: one by one, on as
    many workers as there are cores. Smaller models are stacked, in blocks whose rows take up to 8 MiB, and blocks run
    on all cores where a row takes more than 256 KiB: operations on smaller rows are too short to share.
    """
    if not can_stack or of_images or row_bytes > LARGE_BYTES:
        return Execution(False, 1, cores, 1, pixels_last=of_images)
    block = max(1, min(rows, CACHE_BYTES[1] // max(row_bytes, 1)))
    execution = Execution(True, block, cores if rows * row_bytes > CACHE_BYTES[0] else 1, 1)
    return replace(execution, block=evenly(rows, execution))


def evenly(rows: int, execution: Execution) -> int:
    """Return the rows of a block, at most the way's, such that every worker has as many blocks as the others."""
    blocks = -(-rows // execution.block)
    turns = -(-blocks // execution.workers)
    return max(1, min(execution.block, -(-rows // (turns * execution.workers))))


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
