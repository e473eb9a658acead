"""The loop between coordinators and an engine: several runs advance together, round by round."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from turnout.coordinator import Plan, State
from turnout.distillation import Distil, Predict
from turnout.engine.operation_threads import SMALL, operation_threads
from turnout.engine.task import Engine, Question, Task
from turnout.errors import EngineError, UpdateError
from turnout.losses import Distilled
from turnout.protocols import Population
from turnout.requests import Answer, EngineRequest, Evaluate, Fit, Probe, Record, Score, Steps
from turnout.streams import Streams
from turnout.world.simulation import simulate

INTEGER_TYPES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number
OnRecords = Callable[[list[tuple[int, Record]]], None]
World = Callable[[Plan, Population, State, Streams], Steps[State]]  # runs a plan: asks an engine, yields records
OnFailure = Callable[[int, Exception], None]  # position of the failed run, and its error


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a study: a plan on a task, with a seed."""

    index: int  # identifies the run in on_records
    task: Task
    plan: Plan
    state: State
    streams: Streams
    population: Population
    world: World = simulate  # who answers the round
    slices: dict[Any, Task] = field(default_factory=dict)  # tasks of narrower models, by the arguments of `cut`

    def question(self, request: EngineRequest) -> Question:
        """Return the request with the task that it is about: the run's own, or that of a narrower model."""
        cut = None if isinstance(request, Probe | Score) else request.cut
        if cut is None:
            return self.task, request
        how = (request.scaled, request.masked, request.distil) if isinstance(request, Fit) else (False, False, None)
        key = (cut, *how)
        if key not in self.slices:
            assert self.plan.slices is not None
            module, kind = self.plan.slices.cut(*key), f"{self.task.kind} cut to {key}"
            federation, loss = self.task.federation, self.task.loss if key[-1] is None else Distilled(self.task.loss)
            self.slices[key] = Task(federation=federation, module=module, loss=loss, kind=kind)
        return self.slices[key], request


def drive(
    runs: Sequence[Run], engine: Engine, on_records: OnRecords, on_failure: OnFailure | None = None
) -> list[State]:
    """Run all runs to their end and return their last states.

    No run starts a round before all runs have ended the previous one. The states alone then decide which requests the
    engine answers together, and with that the last bit of every sum: a resumed study continues as if it had never been
    stopped.

    Args:
        runs: the runs.
        engine: answers the requests of all runs.
        on_records: called with the (index, record) of all runs after each round.
        on_failure: called with a run in which a rule raises an error; the others continue. None raises the error.
    """
    small = all(run.state.model.numel() < SMALL for run in runs)
    with operation_threads(1 if small else torch.get_num_threads()):  # threads would wait longer than they work
        _drive(runs, engine, on_records, on_failure)
    return [run.state for run in runs]


def _drive(runs: Sequence[Run], engine: Engine, on_records: OnRecords, on_failure: OnFailure | None) -> None:
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
        except StopIteration:  # the last record had the last state
            waiting.pop(at, None)
        except Exception as error:
            fail(at, error)

    for at in range(len(runs)):
        send(at, None)
    while waiting:
        requests = {at: request for at, request in waiting.items() if not isinstance(request, Record)}
        if requests:
            with _check_unchanged(engine, requests.values()):
                answers, errors = _answers(engine, {at: runs[at].question(request) for at, request in requests.items()})
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


def _answers(engine: Engine, questions: dict[int, Question]) -> tuple[dict[int, Answer], dict[int, Exception]]:
    """Return the answers and the errors by run; if the engine fails on all questions, ask one by one."""
    try:
        return dict(zip(questions, engine.answer(list(questions.values())), strict=True)), {}
    except EngineError:
        raise  # no run would fare better alone
    except Exception as error:
        if len(questions) == 1:
            return {}, dict.fromkeys(questions, error)
        answers: dict[int, Answer] = {}
        errors: dict[int, Exception] = {}
        for at, question in questions.items():
            answered, failed = _answers(engine, {at: question})
            answers |= answered
            errors |= failed
        if not errors:  # the engine fails only on several questions at once: no run is at fault
            raise
        return answers, errors


@contextmanager
def _check_unchanged(engine: Engine, requests: Iterable[EngineRequest]) -> Iterator[None]:
    """Raise UpdateError if the engine changes a model of a request in place."""
    views = [_integer_view(tensor) for request in requests for tensor in _request_tensors(request)]
    before = [bits.clone() for bits in views]
    yield
    if not all(map(torch.equal, before, views)):
        raise UpdateError(
            f"The engine {engine.name!r} changed the model of a request in place, so the run cannot continue. "
            "Let the engine train a copy: request.model.clone()."
        )


def _request_tensors(request: EngineRequest) -> Iterator[Tensor]:
    """Yield the tensors of a request that the engine must not change."""
    yield request.model if isinstance(request, Fit | Probe | Evaluate) else request.models
    if isinstance(request, Predict | Distil):
        return
    if isinstance(request, Probe) and request.models is not None:
        yield request.models
    if request.buffers is not None:
        yield request.buffers


def _integer_view(tensor: Tensor) -> Tensor:
    """Return a view of a tensor as integers: as integers, NaN equals itself and -0 differs from 0."""
    return tensor.detach().view(INTEGER_TYPES[tensor.element_size()])
