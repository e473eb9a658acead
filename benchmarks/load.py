"""A long run and a crowded one: does memory stay flat, can the journal be read meanwhile, and how much is held?

    python -m benchmarks.load

Prints JSON. The soak is 10,000 rounds of a small study, with a reader that asks the journal for everything each second
from another process. The crowd is 10,000 clients a round whose last changes FedVARP remembers.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import turnout as to
from turnout.journal import load
from turnout.requests import Record

GROWTH_BAR, QUERY_BAR, CROWD_BAR = 0.05, 1.0, 8.0  # a share, seconds, GiB


def resident() -> int:
    """Return the bytes this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def small_study(rounds: int) -> to.Study:
    """Return a study of two arms that remember and come and go."""
    return to.Study(
        name="soak",
        data=to.data.Digits(clients=20, partition=to.data.partition.Dirichlet(concentration=0.5, min_size=2)),
        model=to.models.Softmax(),
        fleet=to.Fleet(availability=to.fleet.Bernoulli(prob=0.5)),
        selection=to.selection.Uniform(cohort_size=5),
        local=to.local.SGD(lr=0.05, batch_size=10, steps=2),
        arms=[to.arm("FedAvg"), to.arm("FedVARP", aggregation=to.aggregation.FedVARP())],
        rounds=rounds,
        seeds=1,
    )


def soak(rounds: int) -> dict[str, Any]:
    """Run the small study, and look at memory and at the journal while it goes on."""
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            seen.append(resident())

    def after(arm: str, seed: int, record: Record) -> None:
        if record.finished:  # what is read for the summary, after all rounds, is not growth
            over.set()

    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        reader = multiprocessing.get_context("spawn").Process(target=read_on, args=(Path(folder) / "soak", theirs))
        reader.start()
        ours.recv()  # it is there
        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = time.monotonic()
        small_study(rounds).run(Path(folder) / "soak", on_progress=after)
        seconds = time.monotonic() - begun
        watcher.join()
        ours.send("done")
        queries: list[float] = ours.recv()
        reader.join()
    warm, late = seen[len(seen) // 5], max(seen[-max(1, len(seen) // 20) :])
    return {
        "rounds": rounds,
        "seconds": round(seconds, 1),
        "mib_after_warm_up": round(warm / 2**20, 1),
        "mib_at_the_end": round(late / 2**20, 1),
        "growth": round(late / warm - 1, 4),
        "queries": len(queries),
        "slowest_query_seconds": round(max(queries, default=0.0), 3),
        "met": late / warm - 1 < GROWTH_BAR and max(queries, default=0.0) < QUERY_BAR,
    }


def read_on(folder: Path, end: Connection) -> None:
    """Ask for the last round of every run, again and again, until told to stop; send how long each took."""
    took: list[float] = []
    end.send("ready")
    while not end.poll(1.0):
        if (folder / "journal.sqlite").exists():
            begun = time.perf_counter()
            load(folder).rounds.groupby(["arm", "seed"])["round"].max()
            took.append(time.perf_counter() - begun)
    end.send(took)


def crowd(clients: int, rounds: int) -> dict[str, Any]:
    """Run rounds in which everyone answers and FedVARP remembers all of them."""
    study = to.Study(
        data=to.data.SyntheticOnDemand(clients=clients, max_samples=100),
        model=to.models.MLP(hidden=(64,)),
        local=to.local.SGD(lr=0.05, batch_size=10, steps=2),
        aggregation=to.aggregation.FedVARP(),
        rounds=rounds,
        seeds=1,
    )
    most = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        study.run(Path(folder) / "crowd")
    over.set()
    watcher.join()
    held = most[0] / 2**30
    seconds = (time.monotonic() - begun) / rounds
    return {"clients": clients, "seconds_a_round": round(seconds, 2), "gib": round(held, 2), "met": held < CROWD_BAR}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10_000)
    given = parser.parse_args()
    figures = {"soak": soak(given.rounds), "crowd": crowd(given.clients, 5)}
    print(json.dumps(figures, indent=2))
    return 0 if all(figure["met"] for figure in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
