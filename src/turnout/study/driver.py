"""The loop between coordinators and an engine: several runs advance in step and are answered together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turnout.coordinator import Plan, State
from turnout.engine.task import Engine, Question, Task
from turnout.errors import UpdateError
from turnout.protocols import Population
from turnout.requests import Answer, EngineRequest, Record, Score, Steps
from turnout.streams import Streams
from turnout.world.simulation import simulate

WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of a number
OnRecords = Callable[[list[tuple[int, Record]]], None]
World = Callable[[Plan, Population, State, Streams], Steps[State]]  # runs a plan: asks an engine, yields records
OnFailure = Callable[[int, Exception], None]  # the place of a run among those driven, and why it cannot go on


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a study: a plan on a task, with a seed."""

    index: int  # handed back with each record
    task: Task
    plan: Plan
    state: State
    streams: Streams
    population: Population
    world: World = simulate  # who answers the round


def drive(
    runs: Sequence[Run], engine: Engine, on_records: OnRecords, on_failure: OnFailure | None = None
) -> list[State]:
    """Run all to the end, round by round; each round's records are handed over together. Returns the last states.

    Nobody starts a round before all have ended the last one: which requests are answered together, and with that the
    last bit of every sum, then follows from the states alone, and runs taken up again go on as if never stopped.

    A run in which a rule raises an error is handed to `on_failure`, and the others go on without it; where that is not
    given the error ends all of them.
    """
    waiting: dict[int, Any] = {}
    steps = [run.world(run.plan, run.population, run.state, run.streams) for run in runs]

    def fail(at: int, error: Exception) -> None:
        waiting.pop(at, None)
        if on_failure is None:
            raise error
        on_failure(at, error)

    def send(at: int, answer: Any) -> None:
        try:
            waiting[at] = steps[at].send(answer)
        except StopIteration:  # its last record had its last state
            waiting.pop(at, None)
        except Exception as error:
            fail(at, error)

    for at in range(len(runs)):
        send(at, None)
    while waiting:
        open_ = {at: request for at, request in waiting.items() if not isinstance(request, Record)}
        if open_:
            with _lent(engine, open_.values()):
                answers, errors = _answers(engine, {at: (runs[at].task, request) for at, request in open_.items()})
            for at, error in errors.items():
                fail(at, error)
            for at, answer in answers.items():
                send(at, answer)
            continue
        done = list(waiting.items())
        for at, record in done:
            runs[at].state = record.state
        on_records([(runs[at].index, record) for at, record in done])
        for at, _ in done:
            send(at, None)
    return [run.state for run in runs]


def _answers(engine: Engine, questions: dict[int, Question]) -> tuple[dict[int, Answer], dict[int, Exception]]:
    """Return the answers, and the errors of runs for which the engine fails, by run; alone, too, not only together."""
    try:
        return dict(zip(questions, engine.answer(list(questions.values())), strict=True)), {}
    except Exception as error:
        if len(questions) == 1:
            return {}, dict.fromkeys(questions, error)
        answers: dict[int, Answer] = {}
        errors: dict[int, Exception] = {}
        for at, question in questions.items():
            answered, failed = _answers(engine, {at: question})
            answers |= answered
            errors |= failed
        if not errors:  # the mistake is in answering them together: nobody's rule is to blame
            raise
        return answers, errors


@contextmanager
def _lent(engine: Engine, requests: Iterable[EngineRequest]) -> Iterator[None]:
    """Catch an engine that changes the models it is lent with requests."""
    lent = [_bits(tensor) for request in requests for tensor in _given(request)]
    before = [bits.clone() for bits in lent]
    yield
    if not all(map(torch.equal, before, lent)):
        raise UpdateError(
            f"The engine {engine.name!r} changed a model that it was given with a request; the run cannot go on from "
            "it. Let the engine train a copy: request.model.clone()."
        )


def _given(request: EngineRequest) -> Iterator[Tensor]:
    """Yield what a request lends to the engine."""
    yield request.models if isinstance(request, Score) else request.model
    if request.buffers is not None:
        yield request.buffers


def _bits(tensor: Tensor) -> Tensor:
    """Return a view of a tensor as whole numbers: NaN equals itself there, and -0 differs from 0."""
    return tensor.detach().view(WHOLE[tensor.element_size()])
