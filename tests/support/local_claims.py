"""Claims about a local solver, checked of ours in its tests and of broken copies in the mutants' tests."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.runs import run
from tests.support.tasks import quadratic_task
from turnout.coordinator import Cadence, Plan, State
from turnout.engine import Engine, Task, Vectorised
from turnout.protocols import Local, Population, View
from turnout.streams import Streams
from turnout.study.driver import Run, drive

NEVER = Cadence(every=10**9)


def moved(task: Task, local: Local, rounds: int = 1, engine: Engine | None = None, **plan: Any) -> Tensor:
    """Return the model after some rounds."""
    return run(task, Plan(local=local, rounds=rounds, evaluate=NEVER, **plan), engine=engine)[0].model


def together(jobs: list[tuple[Task, Plan, int]], engine: Vectorised | None = None) -> list[Tensor]:
    """Return the last models of several (task, plan, seed), answered in one drive."""
    runs = []
    for index, (task, plan, seed) in enumerate(jobs):
        population = Population.of(task.federation.sizes)
        state = State.start(task.layout.flatten(task.module), population)
        runs.append(Run(index=index, task=task, plan=plan, state=state, streams=Streams(seed), population=population))
    return [state.model for state in drive(runs, engine or Vectorised("cpu", block=1000), lambda _: None)]


def view(
    round: int = 1,
    *,
    clients: int = 1,
    size: int = 10,
    restart: int = 0,
    memory: dict[str, float] | None = None,
    seed: int = 0,
) -> View:
    """Return what a solver sees in a round."""
    return View(
        round=round,
        rounds=100,
        streams=Streams(seed),
        population=Population.of(np.full(clients, size)),
        model=torch.zeros(1),
        restart=restart,
        memory={} if memory is None else memory,
    )


def claim_the_pull_meets_the_proximal_point(solver: type[Any]) -> None:
    # argmin ½h x² − e x + ½μ(x − x₀)² = (e + μ x₀) / (h + μ), from x₀ = 0
    task = quadratic_task([2.0], [[3.0]], [1])
    final = moved(task, solver(lr=0.05, steps=2000, batches="full", prox_strength=1.0))
    assert float(final) == pytest.approx(3.0 / (2.0 + 1.0), abs=1e-8)


def claim_the_pull_stays_out_of_the_momentum(solver: type[Any], engine: Engine | None = None) -> None:
    # h = 1, e = 1, η = ½, ρ = ½, μ = 1, from 0.
    # k=0: g = −1, v = −1, x = ½;  k=1: g = −½, v = −1, pull ½, x = ½ − ½(−1 + ½) = ¾
    # k=2: g = −¼, v = −¾, pull ¾, x = ¾ − ½(−¾ + ¾) = ¾     (a pull that leaked into v would give another number)
    task = quadratic_task([1.0], [[1.0]], [1])
    local = solver(lr=0.5, steps=3, batches="full", momentum=0.5, prox_strength=1.0)
    assert float(moved(task, local, engine=engine)) == pytest.approx(0.75, abs=1e-12)


def claim_work_is_the_displacement_under_a_constant_gradient(solver: type[Any], **extra: Any) -> None:
    # F = −x has gradient −1 everywhere, so the displacement is η_l‖a‖₁
    task = quadratic_task([0.0], [[1.0]], [1])
    local = solver(lr=0.1, steps=5, batches="full", **extra)
    expected = 0.1 * local.local_work(np.array([5]), local.settings(np.array([0]), view()))[0]
    assert float(moved(task, local)) == pytest.approx(expected, rel=1e-10)
    assert expected != pytest.approx(0.5)


def claim_momentum_starts_afresh_every_round(solver: type[Any]) -> None:
    # F = −x: two steps of ρ = ½ move by 1 + 1.5 units of η, and the next round by as much again
    task = quadratic_task([0.0], [[1.0]], [1])
    local = solver(lr=0.1, steps=2, batches="full", momentum=0.5)
    assert float(moved(task, local, rounds=3)) == pytest.approx(3 * 0.1 * 2.5, abs=1e-12)


def claim_clipping_bounds_the_data_alone(solver: type[Any], engine: Engine | None = None) -> None:
    # F = −10 x, η = ½, μ = 1, clipped to 1.  k=0: g = −1, x = ½;  k=1: g = −1, pull ½, x = ½ + ½·½ = ¾
    # (clipping what is left of −10 + ½ would give x = 1)
    task = quadratic_task([0.0], [[10.0]], [1])
    local = solver(lr=0.5, steps=2, batches="full", prox_strength=1.0, clip_norm=1.0)
    assert float(moved(task, local, engine=engine)) == pytest.approx(0.75, abs=1e-12)
