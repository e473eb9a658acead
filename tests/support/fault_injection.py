"""Killing real processes, cutting the power, and comparing what is left with a study that was never touched."""

import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open

from turnout.journal.schema import FILE

ROOT = Path(__file__).parents[2]
INTERRUPT_ROUNDS = 50
COPIED = 128  # where SQLite's index of the log says up to which frame it has begun to copy
POINTS = tuple(f"{when} {name}" for when in ("before", "after") for name in ("fsync", "replace", "unlink"))
CLOCKS = {"run": ("started", "ended", "checksum"), "round": ("wall_seconds", "checksum")}  # differ from run to run


class Ended(NamedTuple):
    """How a process ended: its exit code, or minus the signal; and all it printed."""

    code: int
    said: str


@dataclass(slots=True)
class Turnout:
    """Starts `turnout` again and again in processes of their own."""

    server: "subprocess.Popen[str]"
    folder: Path  # where the processes run

    def run(
        self,
        *arguments: str | Path,
        kill_after: float | None = None,
        interrupt_at: Path | None = None,
        interrupt_by: signal.Signals = signal.SIGINT,
        die: tuple[str, int] | None = None,
        limit: int | None = None,
    ) -> Ended:
        """Run a command to its end, or to the given one.

        Args:
            arguments: of the command.
            kill_after: seconds until SIGKILL.
            interrupt_at: the folder; when its journal holds some rounds, a signal comes.
            interrupt_by: which signal.
            die: at which call of which system function the process kills itself.
            limit: bytes a file may have, as on a disk that is full.
        """
        output = self.folder / "output.txt"
        order = {"arguments": [*map(str, arguments)], "output": str(output), "folder": str(self.folder)}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps({**order, "die": die, "limit": limit}) + "\n")
        self.server.stdin.flush()
        process = int(self.server.stdout.readline())
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(process, signal.SIGKILL)
        if interrupt_at is not None:
            while rounds_in(interrupt_at) < INTERRUPT_ROUNDS:
                time.sleep(0.01)
            os.kill(process, interrupt_by)
        self.server.stdin.write("\n")  # nothing more is sent to this process: its id may be used again
        self.server.stdin.flush()
        code = int(self.server.stdout.readline())
        return Ended(code, output.read_text(encoding="utf-8"))


@contextmanager
def turnouts(folder: Path) -> Iterator[Turnout]:
    """Start the server of processes."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["TURNOUT_CACHE"] = str(folder / "cache")  # the same choices in every process
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forking_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert server.stdout.readline() == "ready\n"
        try:
            yield Turnout(server, folder)
        finally:
            server.stdin.close()


def contents(folder: Path) -> dict[str, Any]:
    """Return everything a folder holds but the clock's readings: every table, and every tensor bit for bit."""
    database = sqlite3.connect(folder / FILE)
    try:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found: dict[str, Any] = {name: _rows(database, name) for name in sorted(tables)}
    finally:
        database.close()
    for path in sorted(folder.rglob("*.safetensors*")):
        found[str(path.relative_to(folder))] = _tensors(path)
    return found


def _rows(database: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    kept = ", ".join(name for name in names if name not in CLOCKS.get(table, ()))
    return database.execute(f"SELECT {kept} FROM {table} ORDER BY 1, 2").fetchall()


def _tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    with safe_open(path, framework="np") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {name: (str(array.dtype), array.tobytes()) for name, array in held.items()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return where two folders differ."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def rounds_in(folder: Path) -> int:
    """Return how many rounds of all runs a journal holds; 0 if there is none yet."""
    if not (folder / FILE).exists():
        return 0
    database = sqlite3.connect(folder / FILE)
    try:
        return int(database.execute("SELECT count(*) FROM round").fetchone()[0])
    except sqlite3.OperationalError:  # killed before its tables were made
        return 0
    finally:
        database.close()


def cut_power(folder: Path, rng: random.Random) -> None:
    """Take away what a power cut may take: whatever was not synced, in part or as a whole.

    Files that the journal does not vouch for lose their end or hold noise. The log of the database ends somewhere
    after its last synced transaction, between two transactions or within one.
    """
    vouched = _vouched(folder / FILE)
    for path in sorted(folder.rglob("*.safetensors*")):
        if str(path.relative_to(folder)) not in vouched:
            spoil(path, rng, rng.randrange(path.stat().st_size + 1))
    log, index = folder / f"{FILE}-wal", folder / f"{FILE}-shm"
    if log.exists() and log.stat().st_size > 32 and index.exists():  # else nothing was written since the last cut
        earliest = _synced_bytes(folder / FILE, log, vouched)
        spoil(log, rng, rng.randint(earliest, log.stat().st_size))
    index.unlink(missing_ok=True)


def spoil(path: Path, rng: random.Random, at: int) -> None:
    """Cut a file short, or let it hold noise from here on."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(at)
        if rng.random() < 0.5:
            file.seek(at)
            file.write(rng.randbytes(size - at))


def _vouched(database: Path) -> set[str]:
    """Return the files that a journal vouches for, without touching it."""
    with _copy(database) as copy:
        try:
            opened = sqlite3.connect(copy)
            return {name for (name,) in opened.execute("SELECT name FROM file")}
        except sqlite3.OperationalError:
            return set()
        finally:
            opened.close()


def _synced_bytes(database: Path, log: Path, vouched: set[str]) -> int:
    """Return how much of the log is on the disk for certain: up to the commit that last changed what is vouched for."""
    whole = log.read_bytes()
    page = struct.unpack(">I", whole[8:12])[0]
    ends = [32]
    for at in range(32, len(whole) - page - 23, page + 24):
        frame = whole[at : at + 24]
        if frame[8:16] != whole[16:24]:  # left over from an earlier turn of the log
            break
        if frame[4:8] != bytes(4):  # the last frame of a transaction
            ends.append(at + 24 + page)
    (copied,) = struct.unpack("=I", database.with_name(f"{FILE}-shm").read_bytes()[COPIED : COPIED + 4])
    safe = 32 + copied * (page + 24)  # a log is synced before any of it is copied into the database
    for end in (end for end in ends if end >= safe):
        with _copy(database) as copy:
            copy.with_name(f"{FILE}-wal").write_bytes(whole[:end])
            if _vouched_now(copy) == vouched:
                return end
    return len(whole)


def _vouched_now(database: Path) -> set[str]:
    opened = sqlite3.connect(database)
    try:
        return {name for (name,) in opened.execute("SELECT name FROM file")}
    except sqlite3.DatabaseError:
        return {"no tables yet"}
    finally:
        opened.close()


@contextmanager
def _copy(database: Path) -> Iterator[Path]:
    """Copy a database and its log aside."""
    aside = database.parent.with_name(f"{database.parent.name}-copy")
    aside.mkdir()
    try:
        for name in (FILE, f"{FILE}-wal"):
            if database.with_name(name).exists():
                shutil.copy(database.with_name(name), aside / name)
        yield aside / FILE
    finally:
        shutil.rmtree(aside)


@dataclass(slots=True)
class KillCounts:
    """What a series of kills came to."""

    kills: int = 0
    power_cuts: int = 0
    resumed: int = 0  # processes that took up what another had left
    studies: int = 0  # brought to their end
    lost: Sequence[str] = ()  # what differed from a study that was never touched


def torture(turnout: Turnout, study: Path, kills: int, rng: random.Random, power: float = 0.5) -> KillCounts:
    """Run a study untouched, then kill it so many times at random points, resume it, and compare.

    Args:
        turnout: starts processes.
        study: the file.
        kills: how many; when the study ends before, it is begun again.
        rng: draws the points.
        power: how often the power is cut, too.
    """
    whole, tally = turnout.folder / f"{study.stem}-whole", KillCounts()
    run = ("run", study, "--allow-code", "--out")
    begun = time.monotonic()
    ended = turnout.run(*run, whole)
    seconds = time.monotonic() - begun
    assert ended.code == 0, ended.said
    wanted = contents(whole)
    while tally.kills < kills:
        out = turnout.folder / f"{study.stem}-{tally.studies}"
        while True:
            going_on = ("resume", out, "--allow-code") if (out / FILE).exists() and rounds_in(out) else (*run, out)
            ended = _killed(turnout, going_on, seconds, rng) if tally.kills < kills else turnout.run(*going_on)
            tally.resumed += going_on[0] == "resume"
            if ended.code != -signal.SIGKILL:
                break
            tally.kills += 1
            if (out / FILE).exists() and rng.random() < power:
                cut_power(out, rng)
                tally.power_cuts += 1
        assert ended.code == 0, ended.said
        tally.lost = [*tally.lost, *differences(contents(out), wanted)]
        tally.studies += 1
        shutil.rmtree(out)
    return tally


def _killed(turnout: Turnout, arguments: Sequence[str | Path], seconds: float, rng: random.Random) -> Ended:
    """Run a command that is killed at a random time, or at a random system call."""
    if rng.random() < 0.5:
        return turnout.run(*arguments, kill_after=rng.uniform(0, seconds))
    return turnout.run(*arguments, die=(rng.choice(POINTS), rng.randint(1, 8)))
