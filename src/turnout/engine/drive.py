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
    """Run all to the end, round by round; each round's records are handed over together. Returns the last states.

    Nobody starts a round before all have ended the last one: which requests are answered together, and with that the
    last bit of every sum, then follows from the states alone, and runs taken up again go on as if never stopped.
    """
    waiting: dict[int, Any] = {}
    steps = [coordinate(run.plan, run.population, run.state, run.streams) for run in runs]

    def send(at: int, answer: Any) -> None:
        try:
            waiting[at] = steps[at].send(answer)
        except StopIteration as stop:
            waiting.pop(at, None)
            runs[at].state = stop.value

    for at in range(len(runs)):
        send(at, None)
    while waiting:
        open_ = [(at, request) for at, request in waiting.items() if not isinstance(request, Record)]
        if open_:
            answers = engine.answer([(runs[at].task, request) for at, request in open_])
            for (at, _), answer in zip(open_, answers, strict=True):
                send(at, answer)
            continue
        done = list(waiting.items())
        on_records([(runs[at].index, record) for at, record in done])
        for at, _ in done:
            send(at, None)
    return [run.state for run in runs]
