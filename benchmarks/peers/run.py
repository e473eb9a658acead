"""turnout beside other frameworks: python -m benchmarks.peers.run [--only flwr pfl] [--workloads W1 W2] [--json FILE].

Each peer lives in a virtual environment of its own under --venvs, made when it is missing. Processes are interleaved:
turnout, then the peer with each number of operation threads, as many times as --passes says; the medians of all
rounds but the first of each process are compared, the peer's with its better number of threads. A peer that cannot be
installed or run is reported with the reason. Exit code 0 when turnout is ahead of every peer that could be installed,
1 when it is behind one or one did not get through.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.peers.install import PEERS, InstallError, Peer, python_of
from benchmarks.quiet import wait_until_quiet
from benchmarks.reporting import print_table, write_json
from benchmarks.workloads import PEER_WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 900  # seconds one process may take
NOT_INSTALLED = "cannot be installed"


class PeerError(Exception):
    """A process that did not get through; the message says why."""


@dataclass(slots=True, kw_only=True)
class Duel:
    """turnout and one peer on one workload."""

    peer: str
    workload: str
    turnout: list[float] = field(default_factory=list)
    theirs: dict[int, list[float]] = field(default_factory=dict)  # by operation threads
    losses: dict[str, float] = field(default_factory=dict)  # after as many rounds each; a sign that the work was done
    failure: str = ""

    @property
    def threads(self) -> int:
        """The peer's better number of operation threads."""
        return min(self.theirs, key=lambda count: statistics.median(self.theirs[count]))

    @property
    def times(self) -> float:
        """How many times as fast as the peer turnout is."""
        return statistics.median(self.theirs[self.threads]) / statistics.median(self.turnout)

    @property
    def is_lost(self) -> bool:
        """Whether the peer was measured and is ahead."""
        return not self.failure and self.times <= 1

    @property
    def is_broken(self) -> bool:
        """Whether the peer is installed but did not get through."""
        return bool(self.failure) and not self.failure.startswith(NOT_INSTALLED)

    def row(self) -> list[object]:
        """Return the table's row."""
        if self.failure:
            return [self.workload, self.peer, "", "", "", "", "not measured"]
        medians = [statistics.median(values) for values in (self.theirs[self.threads], self.turnout)]
        verdict = "BEHIND" if self.is_lost else "ahead"
        return [self.workload, self.peer, self.threads, *medians, round(self.times, 2), verdict]


def seconds_of(python: Path, name: str, workload: str, rounds: int, threads: int) -> tuple[list[float], float]:
    """Run one process; return the seconds of every round but the first, and the loss at the end."""
    wait_until_quiet()
    with tempfile.TemporaryDirectory(prefix="turnout-peer-") as folder:
        out = Path(folder) / "result.json"
        command = [str(python), "-m", f"benchmarks.peers.{name}", workload]
        command += ["--rounds", str(rounds), "--threads", str(threads), "--out", str(out)]
        said = Path(folder) / "said.txt"
        with said.open("w") as log:
            try:
                subprocess.run(
                    command, cwd=ROOT, stdout=log, stderr=log, timeout=LONGEST, check=True, env=environment()
                )
                result = json.loads(out.read_text())
            except (subprocess.SubprocessError, OSError, ValueError) as error:
                raise PeerError(f"{name} on {workload}: {last_line(said) or error}") from error
    return result["seconds"][1:], result["loss"]


def environment() -> dict[str, str]:
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def fight(duel: Duel, peer: Peer, python: Path, rounds: int) -> None:
    """Run turnout once and the peer once with each number of threads."""
    mine, loss = seconds_of(Path(sys.executable), "turnout", duel.workload, rounds, 1)
    duel.turnout += mine
    duel.losses["turnout"] = loss
    for count in peer.threads:
        try:
            theirs, loss = seconds_of(python, peer.name, duel.workload, rounds, count)
        except PeerError as error:
            duel.failure = str(error)
            return
        duel.theirs.setdefault(count, []).extend(theirs)
        duel.losses[peer.name] = loss


def all_duels(given: argparse.Namespace) -> list[Duel]:
    """Install and measure; whatever fails is kept with its reason."""
    duels = [
        Duel(peer=peer, workload=workload)
        for workload in given.workloads
        for peer in given.only
        if peer in (PEER_WORKLOADS[workload].peers or PEERS)
    ]
    pythons: dict[str, Path] = {}
    for name in given.only:
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        try:
            pythons[name] = python_of(given.venvs, PEERS[name])
        except InstallError as error:
            for duel in duels:
                duel.failure = f"{NOT_INSTALLED}: {error}" if duel.peer == name else duel.failure
    for turn in range(given.passes):
        for duel in duels:
            if duel.failure:
                continue
            print(f"pass {turn + 1}: {duel.workload} {duel.peer} ...", file=sys.stderr, flush=True)
            fight(duel, PEERS[duel.peer], pythons[duel.peer], given.rounds)
    return duels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(PEERS), default=list(PEERS))
    parser.add_argument("--workloads", nargs="+", choices=sorted(PEER_WORKLOADS), default=sorted(PEER_WORKLOADS))
    parser.add_argument("--venvs", type=Path, default=ROOT / ".peers", help="where the virtual environments live")
    parser.add_argument("--passes", type=int, default=2, help="how often each pair is run")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each process, the first of them a warm-up")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    duels = all_duels(given)
    header = ["", "peer", "threads", "peer s", "turnout s", "times as fast", ""]
    print_table("Seconds a round, medians", header, [duel.row() for duel in duels])
    for duel in duels:
        if duel.failure:
            print(f"{duel.workload} {duel.peer} not measured: {duel.failure}")
    write_json(given.json, {f"{duel.workload} {duel.peer}": asdict(duel) for duel in duels})
    return 1 if any(duel.is_lost or duel.is_broken for duel in duels) else 0


if __name__ == "__main__":
    sys.exit(main())
