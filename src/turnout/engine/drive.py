"""The loop between coordinators and an engine: several runs advance in step and are answered together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.coordinator import Plan, State, coordinate
from turnout.engine.task import Engine, Task
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams

OnRecords = Callable[[list[tuple[int, Record]]], None]


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a study: a plan on a task, with a seed."""

    index: int  # handed back with each record
    task: Task
    plan: Plan
    state: State
    streams: Streams
    population: Population


def drive(runs: Sequence[Run], engine: Engine, on_records: OnRecords) -> list[State]:
    """Run all to the end; each round's records are handed over together. Returns the last states."""
    waiting: dict[int, Any] = {}
    finals: dict[int, State] = {}
    steps = [coordinate(run.plan, run.population, run.state, run.streams) for run in runs]

    def send(at: int, answer: Any) -> None:
        try:
            waiting[at] = steps[at].send(answer)
        except StopIteration as stop:
            waiting.pop(at, None)
            finals[at] = stop.value

    for at in range(len(runs)):
        send(at, None)
    while waiting:
        done = [(at, request) for at, request in waiting.items() if isinstance(request, Record)]
        if done:
            on_records([(runs[at].index, record) for at, record in done])
            for at, _ in done:
                send(at, None)
            continue
        open_ = list(waiting.items())
        answers = engine.answer([(runs[at].task, request) for at, request in open_])
        for (at, _), answer in zip(open_, answers, strict=True):
            send(at, answer)
    return [finals[at] for at in range(len(runs))]
