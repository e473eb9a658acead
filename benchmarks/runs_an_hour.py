"""Runs an hour: a study of 8 arms and 10 seeds on digits. python -m benchmarks.runs_an_hour [--json FILE].

turnout runs the study as one: 80 runs of 60 rounds, 10 of 60 clients a round, measured every second round, with its
journal on disk. Its processor time is split into arithmetic, evaluation, coordination, journal, and the study's start
and end; so is that of the demo. Coordination and journal together have a bar of 15 % of the time of the demo's rounds.
Exit code 0 when it is met, 1 when it is not.

Beside it, FedJAX, the fastest peer on small models, and a plain loop would do the runs one after another: their seconds
a round, on data of the same shape, times all rounds, with nothing selected, measured or written. A peer that cannot be
installed or run is left out with the reason.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.install import PEERS, InstallError, python_of
from benchmarks.peers.run import ROOT, PeerError, seconds_of
from benchmarks.plain_loop import PlainLoop
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from benchmarks.workloads import DIGITS
from turnout.engine import Vectorised
from turnout.journal import Journal
from turnout.reproduce.timing import MEASURING, PROBING, TRAINING, Timed
from turnout.study import Study, load_study, running

HOUR = 3600.0
PEER = "fedjax"
ARMS = ("fedavg", "fedprox", "fednova", "scaffold", "fedexp", "fedvarp", "fedavgm", "fedadam")
SEEDS, ROUNDS, DEMO_REPETITIONS = 10, 60, 5
BAR = 0.15  # of the processor time of the demo's rounds: coordination and journal together
KINDS = ("arithmetic", "evaluation", "coordination", "journal", "start and end")
STUDY = f"""
name = "runs-an-hour"
rounds = {ROUNDS}
seeds = {SEEDS}
data = {{ use = "digits", clients = 60, partition = "iid" }}
model = {{ use = "mlp", hidden = [32] }}
selection = {{ use = "uniform", cohort_size = {DIGITS.num_clients} }}
evaluate.every = 2

[local]
use = "sgd"
lr = {DIGITS.lr}
batch_size = {DIGITS.batch_size}
epochs = {DIGITS.epochs}
"""


def study_text() -> str:
    """Return the study file: one arm for each recipe."""
    return STUDY + "".join(f'\n[[arm]]\nname = "{name}"\nrecipe = "{name}"\n' for name in ARMS)


@contextmanager
def processor_seconds(owner: Any, name: str) -> Iterator[list[float]]:
    """Collect the processor seconds of each call of a function or method."""
    seconds: list[float] = []
    call = getattr(owner, name)

    def timed(*given: Any, **more: Any) -> Any:
        started = time.process_time()
        try:
            return call(*given, **more)
        finally:
            seconds.append(time.process_time() - started)

    setattr(owner, name, timed)
    try:
        yield seconds
    finally:
        setattr(owner, name, call)


def runs_an_hour_study(rounds: int) -> Study:
    """Return the study of this benchmark, with so many rounds."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        file = Path(folder) / "study.toml"
        file.write_text(study_text())
        return load_study(file, [f"rounds={rounds}"])


def split_of(study: Study) -> dict[str, Any]:
    """Run a study once; return its seconds, and the processor seconds of each kind of work."""
    engine = Timed(Vectorised())
    with (
        tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder,
        processor_seconds(Journal, "write") as journal,
        processor_seconds(running, "drive") as rounds_of_groups,
    ):
        began, used = time.perf_counter(), time.process_time()
        study.run(Path(folder) / "out", engine=engine, progress=False)
        seconds, processor = time.perf_counter() - began, time.process_time() - used
    known = {
        "arithmetic": engine.seconds[TRAINING] + engine.seconds[PROBING],
        "evaluation": engine.seconds[MEASURING],
        "journal": sum(journal),
    }
    whole = sum(rounds_of_groups)
    known |= {"coordination": whole - sum(known.values()), "start and end": processor - whole}
    return {"seconds": seconds, "processor": processor, **known}


def demo_split(repetitions: int) -> tuple[dict[str, float], float]:
    """Return each kind's microseconds a round of a run of the demo, the least of some runs, and the share of the bar.

    The share is that of coordination and journal in the processor time of the rounds.
    """
    study = load_study("demo")
    rounds = sum(version.rounds for version in study.versions().values()) * len(study.looks[0])
    splits = [split_of(study) for _ in range(repetitions)]
    least = min(splits, key=lambda split: split["processor"])
    beside = least["coordination"] + least["journal"]
    share = beside / (beside + least["arithmetic"] + least["evaluation"])
    return {kind: least[kind] / rounds * 1e6 for kind in KINDS}, share


def peer_round(venvs: Path, rounds: int) -> tuple[float | None, str]:
    """Return the peer's median seconds a round, or None and why it was not measured."""
    try:
        seconds, _ = seconds_of(python_of(venvs, PEERS[PEER]), PEER, DIGITS.name, rounds, PEERS[PEER].threads[0])
    except (InstallError, PeerError) as error:
        return None, str(error)
    return statistics.median(seconds), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each run")
    parser.add_argument("--repetitions", type=int, default=10, help="rounds of the peer and of the plain loop")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".peers", help="where the peer's environment lives")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    runs, ours = len(ARMS) * SEEDS, split_of(runs_an_hour_study(given.rounds))
    demo, beside = demo_split(DEMO_REPETITIONS)
    met = beside <= BAR
    loop = measure([Contender("plain loop", PlainLoop(DIGITS, 1).round)], repetitions=given.repetitions)
    theirs, why = peer_round(given.venvs, given.repetitions + 1)
    a_round = {"turnout": ours["seconds"] / (runs * given.rounds), "plain loop": loop["plain loop"].median}
    a_round |= {} if theirs is None else {PEER: theirs}
    hourly = {name: HOUR / (seconds * given.rounds) for name, seconds in a_round.items()}
    rows = [[name, a_round[name] * 1e3, round(hourly[name])] for name in a_round]
    print_table(f"{runs} runs of {given.rounds} rounds on digits", ["", "ms a round of a run", "runs an hour"], rows)
    shares = {kind: ours[kind] / ours["processor"] for kind in KINDS}
    parts = [[kind, f"{share:.0%}"] for kind, share in shares.items()]
    print_table("turnout's processor time", ["", "share"], parts)
    print_table(
        "turnout run demo: coordination and journal are "
        f"{beside:.1%} of the rounds' processor time, bar {BAR:.0%}: {'met' if met else 'NOT MET'}",
        ["", "µs a round of a run"],
        [[kind, round(micros)] for kind, micros in demo.items()],
    )
    if why:
        print(f"{PEER} not measured: {why}")
    figures = {"runs": runs, "rounds": given.rounds, "runs_an_hour": hourly, "seconds_a_round": a_round}
    figures |= {"turnout": ours, "shares": shares, "not_measured": {PEER: why} if why else {}}
    figures |= {"demo_microseconds": demo, "demo_beside": beside, "bar": BAR, "met": met}
    write_json(given.json, figures)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
