"""How many answers a round can one coordinator take? Sender processes stream them through loopback TCP connections.

    python -m benchmarks.scale [--answers 1000 10000 100000] [--senders 4] [--rounds 3] [--json FILE]

Prints JSON. Each case is a process of its own, so that its peak memory is its own. Senders stream one frame per answer
(client, round, steps, loss, seconds, row of float32); one answer in a thousand is not finite. The coordinator is the
real round: selection among ten times as many clients, checks of every answer, weighing, the server step, and the
journal's record. There is no TLS and no training: these are the costs of the coordinator alone.
"""

import argparse
import json
import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.scale_sender import CHUNK, FRAME, PARAMETERS, STEPS
from turnout.aggregation import FedAvg, FedVARP
from turnout.coordinator import Plan, State, coordinate
from turnout.journal import Journal, RunInfo
from turnout.local import SGD
from turnout.progress import Progress
from turnout.protocols import Population
from turnout.requests import Census, Collect, Dispatch, Evaluate, Evaluated, Present, Record, Returns, Trained
from turnout.selection import Uniform
from turnout.streams import Streams

SHARE_ASKED = 10  # one client in so many is asked
RULES = {"fedavg": FedAvg, "fedvarp": FedVARP}


PARTS = ("select", "receive", "check_and_step", "journal")


def now() -> tuple[float, float]:
    """Return the time on the wall and on this process's processor; the latter does not count the work of others."""
    return time.perf_counter(), time.process_time()


class Loopback:
    """A world whose clients answer through sockets; it only hands out work and collects what arrives."""

    def __init__(self, connections: list[socket.socket], num_clients: int, num_answers: int) -> None:
        self.connections = connections
        self.everyone = np.arange(num_clients)
        self.rows = torch.zeros(num_answers, PARAMETERS)
        self.seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in PARTS}
        self.mark = now()

    def lap(self, name: str | None = None) -> None:
        """Note how long something took since the last call."""
        wall, processor = now()
        if name is not None:
            self.seconds[name].append((wall - self.mark[0], processor - self.mark[1]))
        self.mark = now()

    def answer(self, request: Any) -> Any:
        """Return what the coordinator asks for."""
        if isinstance(request, Census):
            present = Present(members=None, up=self.everyone if request.round else self.everyone[:0])
            self.lap()
            return present
        if isinstance(request, Dispatch):
            self.lap("select")
            return self.hand_out(request)
        if isinstance(request, Collect):
            returns = self.collect(request) if len(request.clients) else None
            self.lap("receive")
            return returns
        if isinstance(request, Evaluate):
            return Evaluated(metrics={"loss": float(request.model.square().sum())})
        raise TypeError(f"A world cannot answer {type(request).__name__}.")

    def hand_out(self, request: Dispatch) -> None:
        """Send every sender its share of the clients, and the model."""
        order = request.order
        model = order.model.numpy().astype("<f4").tobytes()
        for connection, clients in zip(
            self.connections, np.array_split(order.clients, len(self.connections)), strict=True
        ):
            head = np.array([order.round, len(clients)], dtype="<i8").tobytes()
            connection.sendall(head + clients.astype("<i8").tobytes() + model)

    def collect(self, request: Collect) -> Returns:
        """Read answers as they arrive, each into the row of its client."""
        order, count = request.order, len(request.clients)
        steps, loss, seconds = np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(count)
        rows = self.rows.numpy()
        for frames in self.arriving(count):
            place = np.searchsorted(order.clients, frames["client"])
            rows[place], steps[place] = frames["row"], frames["steps"]
            loss[place], seconds[place] = frames["loss"], frames["seconds"]
        work = Trained(
            clients=order.clients,
            steps=steps,
            loss=loss,
            finite=np.ones(count, dtype=bool),
            delta=self.rows[:count],
            round=order.round,
        )
        progress = Progress(clients=order.clients, steps=steps, seconds=seconds, cut_off=np.zeros(count, dtype=bool))
        unknown, rounds = np.full(count, -1), np.full(count, order.round)
        return Returns(clients=order.clients, steps=unknown, rounds=rounds, work=work, facts=None, progress=progress)

    def arriving(self, count: int) -> Iterator[np.ndarray]:
        """Yield frames in the order of arrival until so many are here."""
        buffers = {connection: bytearray() for connection in self.connections}
        with selectors.DefaultSelector() as ready:
            for connection in self.connections:
                ready.register(connection, selectors.EVENT_READ)
            while count:
                for key, _ in ready.select():
                    connection: Any = key.fileobj
                    buffer = buffers[connection]
                    buffer += connection.recv(CHUNK * FRAME.itemsize)
                    whole = len(buffer) // FRAME.itemsize
                    if whole:
                        yield np.frombuffer(bytes(buffer[: whole * FRAME.itemsize]), dtype=FRAME)
                        del buffer[: whole * FRAME.itemsize]
                        count -= whole


def coordinator(result: Connection, case: dict[str, Any]) -> None:
    """Run a case in this process, and send what was measured."""
    torch.set_num_threads(1)
    answers, clients = case["answers"], case["answers"] * SHARE_ASKED
    plan = Plan(
        local=SGD(lr=0.1, steps=STEPS),
        rounds=case["rounds"],
        selection=Uniform(cohort_size=answers),
        aggregation=RULES[case["rule"]](),
    )
    population = Population.of(np.full(clients, 20))
    state = State.start(torch.zeros(PARAMETERS), population)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = [sys.executable, "-m", "benchmarks.scale_sender", str(listener.getsockname()[1])]
        senders = [subprocess.Popen([*sender, str(seed)]) for seed in range(case["senders"])]
        world = Loopback([listener.accept()[0] for _ in senders], clients, answers)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "scale"
        with Journal.create(folder, study="scale", config={}, facts={}) as journal:
            run = journal.begin(RunInfo(arm="scale", seed=0, rounds=case["rounds"], config={}))
            rejected = drive(coordinate(plan, population, state, Streams(0)), world, journal, run)
        journal_bytes = sum(file.stat().st_size for file in folder.iterdir())
    for connection in world.connections:
        connection.close()
    for process in senders:
        process.wait()
    facts = {"clients": clients, "bytes_up": answers * FRAME.itemsize, "rejected": rejected}
    sizes = {"journal_bytes": journal_bytes // case["rounds"], "peak_mib": peak_mib()}
    result.send(case | facts | timings(world.seconds, answers) | sizes)


def drive(steps: Any, world: Loopback, journal: Journal, run: int) -> int:
    """Let the coordinator run, and write each record; return how many answers it rejected."""
    rejected, answer = 0, None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration:
            assert rejected, "no answer was rejected, and one in a thousand is not finite"
            return rejected
        if not isinstance(request, Record):
            answer = world.answer(request)
            continue
        world.lap("check_and_step" if request.round else None)
        journal.write([(run, request)])
        world.lap("journal" if request.round else None)
        rejected += len(request.rejected)
        assert len(request.answered) + len(request.rejected) == len(request.asked), "an answer was lost"
        answer = None


def timings(seconds: dict[str, list[tuple[float, float]]], answers: int) -> dict[str, Any]:
    """Return the median over rounds of each part, on the wall and on the processor, and the answers a second."""
    found: dict[str, Any] = {}
    for place, kind in enumerate(("seconds", "cpu_seconds")):
        parts = {name: statistics.median(lap[place] for lap in laps) for name, laps in seconds.items()}
        total = sum(parts.values())
        found |= {f"{name}_{kind}": round(value, 4) for name, value in (parts | {"round": total}).items()}
        found[f"answers_per_{kind.removesuffix('s')}"] = round(answers / total)
    return found


def peak_mib() -> float:
    """Return the most memory that this process has had."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in a fresh process, and return what it measured."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=coordinator, args=(theirs, case))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv()
    finally:
        process.join()
    return found


def main() -> None:
    """Measure every case and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    cases = [
        measure({"rule": rule, "answers": answers, "senders": given.senders, "rounds": given.rounds})
        for rule in given.rules
        for answers in given.answers
    ]
    text = json.dumps({"parameters": PARAMETERS, "load_before": round(load, 2), "cases": cases}, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
