"""The engines give the same numbers, whatever the block, the workers and the company."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.engine_plans import SOLVERS, plan
from tests.support.engine_requests import answered, request
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import (
    LastStep,
    blob_federation,
    blob_task,
    image_federation,
    seeded,
    text_federation,
    train_of,
    wide_task,
)
from turnout import losses
from turnout.coordinator import Plan, State
from turnout.engine import Engine, Sequential, Task, Vectorised
from turnout.local import SGD
from turnout.protocols import Population
from turnout.row_table import TableExcerpt
from turnout.streams import Streams
from turnout.study.driver import Run, drive


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Tensor:
        result: Tensor = self.second(torch.tanh(self.first(x)) + x)
        return result


class Odd(nn.Module):
    """Not lowered: a parameter used by hand; vmap can map it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Any) -> Tensor:
        return torch.sin(x) @ self.weight


class Branching(nn.Module):
    """Can be neither lowered nor mapped: its path depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Tensor:
        result: Tensor = self.layer(x) if float(x.sum()) > 0 else self.layer(-x)
        return result


def mixed_task(between: Any) -> Any:
    """Return a task with layers of many outputs, whose weights lie transposed, and of few, whose weights do not."""
    layers = [nn.Linear(4, 20), between(), nn.Linear(20, 17, bias=False), between(), nn.Linear(17, 3)]
    return Task(federation=blob_federation(), module=seeded(nn.Sequential(*layers)), loss=losses.cross_entropy)


TASKS: dict[str, Callable[[], Task]] = {
    "mlp": blob_task,
    "wide": wide_task,
    "mixed, by hand": lambda: mixed_task(nn.ReLU),
    "mixed, lowered": lambda: mixed_task(nn.Tanh),
    "residual": lambda: Task(federation=blob_federation(), module=seeded(Residual()), loss=losses.cross_entropy),
    "odd": lambda: Task(federation=blob_federation(), module=seeded(Odd()), loss=losses.cross_entropy),
    "cnn": lambda: Task(
        federation=image_federation(),
        module=seeded(
            nn.Sequential(
                nn.Conv2d(2, 4, 3, padding=1),
                nn.ReLU(),
                nn.GroupNorm(2, 4),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(36, 3),
            )
        ),
        loss=losses.cross_entropy,
    ),
    "lstm": lambda: Task(federation=text_federation(), module=seeded(LastStep()), loss=losses.cross_entropy),
}


@pytest.mark.parametrize("local", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("name", TASKS.keys())
def test_engine_every_way_gives_the_same_model(name: str, local: SGD) -> None:
    task = TASKS[name]()
    reference, records = run(task, plan(local))
    ways = [
        Vectorised("cpu", block=100),
        Vectorised("cpu", block=2, threads=1),
        Vectorised("cpu", block=2, workers=2),
        Vectorised("cpu", stack=False, workers=2),
    ]
    assert not torch.equal(reference.model, task.layout.flatten(task.module))
    for engine in ways:
        final, others = run(task, plan(local), engine=engine)
        assert torch.allclose(final.model, reference.model, rtol=0, atol=1e-11)
        for mine, theirs in zip(records, others, strict=True):
            assert np.allclose(mine.losses, theirs.losses, rtol=0, atol=1e-11, equal_nan=True)
            assert mine.metrics.keys() == theirs.metrics.keys()
            assert np.allclose(list(mine.metrics.values()), list(theirs.metrics.values()), rtol=0, atol=1e-11)


def test_engine_the_guess_changes_no_result() -> None:
    task = blob_task()
    reference, _ = run(task, plan(SOLVERS["plain"]))
    engine = Vectorised("cpu")
    final, _ = run(task, plan(SOLVERS["plain"]), engine=engine)
    assert engine.tunings
    assert torch.allclose(final.model, reference.model, rtol=0, atol=1e-11)


def test_engine_runs_answered_together_give_what_each_gives_alone() -> None:
    task, other = blob_task(), None
    other = Task(federation=blob_federation(9, seed=4), module=task.module, loss=task.loss)
    plans = [plan(SOLVERS["plain"]), plan(SOLVERS["momentum"]), plan(SGD(lr=0.02, batch_size=7, epochs=1))]
    jobs, alone = [], []
    for index, (a_task, a_plan, seed) in enumerate((t, p, s) for t in (task, other) for p in plans for s in (0, 1)):
        population = Population.of(a_task.federation.sizes)
        state = State.start(task.layout.flatten(task.module), population)
        jobs.append(
            Run(index=index, task=a_task, plan=a_plan, state=state, streams=Streams(seed), population=population)
        )
        alone.append(run(a_task, a_plan, seed=seed)[0].model)
    together = drive(jobs, Vectorised("cpu", block=4), lambda _: None)
    for mine, theirs in zip(alone, together, strict=True):
        assert torch.allclose(mine, theirs.model, rtol=0, atol=1e-11)


def test_engine_a_module_that_cannot_be_mapped_runs_alone_and_says_so_once() -> None:
    task = Task(federation=blob_federation(), module=seeded(Branching()), loss=losses.cross_entropy)
    reference, _ = run(task, plan(SOLVERS["plain"]))
    engine = Vectorised("cpu", block=4)
    with pytest.warns(UserWarning, match="Branching cannot be stacked.*one by one, with the same results"):
        final, _ = run(task, plan(SOLVERS["plain"]), engine=engine)
    assert torch.allclose(final.model, reference.model, rtol=0, atol=1e-11)


def test_engine_an_activation_that_stands_in_two_places_acts_in_both() -> None:
    between = nn.ReLU()
    module = seeded(nn.Sequential(nn.Linear(4, 8), between, nn.Linear(8, 8), between, nn.Linear(8, 3)))
    task = Task(federation=blob_federation(), module=module, loss=losses.cross_entropy)
    reference, _ = run(task, plan(SOLVERS["plain"]))
    stacked, _ = run(task, plan(SOLVERS["plain"]), engine=Vectorised("cpu", block=3))
    assert torch.allclose(stacked.model, reference.model, rtol=0, atol=1e-11)


@pytest.mark.parametrize("places", [1, 2])
def test_engine_dropout_masks_are_keyed_by_client(places: int) -> None:
    dropout = nn.Dropout(0.5)
    module = seeded(nn.Sequential(*[dropout] * (places - 1), nn.Linear(4, 8), nn.ReLU(), dropout, nn.Linear(8, 3)))
    task = Task(federation=blob_federation(), module=module, loss=losses.cross_entropy)
    reference, _ = run(task, plan(SOLVERS["plain"]))
    again, _ = run(task, plan(SOLVERS["plain"]), engine=Vectorised("cpu", workers=2))
    other, _ = run(task, plan(SOLVERS["plain"]), seed=1)
    assert torch.allclose(again.model, reference.model, rtol=0, atol=1e-11)
    assert not torch.allclose(other.model, reference.model)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised("cpu", block=2), Vectorised("cpu", stack=False)])
def test_engine_a_request_that_goes_on_draws_the_masks_of_the_steps_that_follow(engine: Engine) -> None:
    module = seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)))
    task = Task(federation=blob_federation(), module=module, loss=losses.cross_entropy)
    names = tuple(slot.name for slot in task.layout.slots)
    both = replace(request(task, None, SGD(lr=0.1, batch_size=5, steps=2)), wants_ends=names)
    one = replace(both, steps=np.ones_like(both.steps))
    first = present(answered(engine, task, one).ends)
    then = replace(one, starts=TableExcerpt(one.clients, first), first_step=1)
    assert torch.allclose(
        present(answered(engine, task, then).ends), present(answered(engine, task, both).ends), rtol=0, atol=1e-12
    )


def test_engine_buffers_are_averaged_by_share_of_the_data() -> None:
    module = seeded(nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3)))
    federation = blob_federation(3)
    task = Task(federation=federation, module=module, loss=losses.cross_entropy)
    population = Population.of(federation.sizes)
    start = State.start(task.layout.flatten(module), population, task.layout.flatten_buffers(module))
    job = Run(
        index=0,
        task=task,
        plan=Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=1),
        state=start,
        streams=Streams(0),
        population=population,
    )
    (final,) = drive([job], Vectorised("cpu"), lambda _: None)
    means = torch.stack([train_of(federation).of(i).x.mean(0) for i in range(3)])
    expected = torch.tensor(population.weights) @ means
    assert torch.allclose(present(final.buffers)[:4], expected, rtol=0, atol=1e-10)


def test_engine_same_seed_same_trajectory_bit_for_bit() -> None:
    for engine in (Sequential, lambda: Vectorised("cpu", block=3)):
        first, _ = run(blob_task(), plan(SOLVERS["momentum"]), engine=engine())
        again, _ = run(blob_task(), plan(SOLVERS["momentum"]), engine=engine())
        other, _ = run(blob_task(), plan(SOLVERS["momentum"]), engine=engine(), seed=1)
        assert torch.equal(first.model, again.model)
        assert not torch.equal(first.model, other.model)
