"""Claims about selection rules, each one assertion; the mutants are held against the same ones."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.support.engine_requests import answered
from tests.support.selection_asking import Desk, chosen, view
from tests.support.tasks import quadratic_task
from turnout.array_types import Floats
from turnout.engine import Sequential, Task
from turnout.requests import Probe
from turnout.streams import Streams

UP = np.array([1, 3, 4, 8, 9, 12, 15, 17])  # ids are not places in the pool


def claim_the_hardest_candidates_are_chosen(rule: Any) -> None:
    """Of those asked for a loss, the cohort_size with the largest are chosen."""
    for seed in range(20):
        loss = np.random.default_rng(seed).permutation(18) * 1.0
        desk = Desk(loss=loss)
        choice = chosen(rule, UP, view([1] * 18, seed=seed), desk)
        (question,) = desk.asked
        assert len(question.clients) == rule.pool_size
        ranked = sorted(question.clients, key=lambda c: -loss[c])
        assert sorted(choice.clients) == sorted(ranked[: rule.cohort_size])


def unlike_clients() -> Task:
    """Clients whose samples are all alike within a client, and differ between clients."""
    return quadratic_task([1.0] * 5, [[2.0], [5.0], [-3.0], [7.0], [1.0]], [3, 9, 4, 1, 12])


def claim_batch_losses_are_the_clients_own(task: Task) -> None:
    """With samples alike, a mini-batch's loss is the client's loss, whatever was drawn."""
    full, batch = (answered(Sequential(), task, probe(batch_size)).loss for batch_size in (None, 2))
    own = 0.5 - np.array([2.0, 5.0, -3.0, 7.0, 1.0])  # ½x² − e x at x = 1
    assert np.allclose(full, own)
    assert np.allclose(batch, own)


def probe(batch_size: int | None) -> Probe:
    return Probe(
        round=1,
        streams=Streams(0),
        model=torch.ones(1, dtype=torch.float64),
        buffers=None,
        clients=np.arange(5),
        what="loss",
        batch_size=batch_size,
    )


def claim_one_of_each_group_is_chosen(greedy: Callable[..., Any]) -> None:
    """Clients in K groups of equal gradients: one of each is chosen and everyone is represented exactly."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        group = rng.permutation(np.repeat(np.arange(4), [5, 1, 3, 2]))
        points = rng.normal(size=(4, 3))[group]
        apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
        picked = greedy(apart, 4)
        assert sorted(group[picked]) == [0, 1, 2, 3]
        assert apart[picked].min(0).sum() == 0


def claim_sending_is_unbiased(rule: Any, draws: int = 1500) -> None:
    """The mean of Σ (p_i / π_i) Δ_i over draws is Σ p_i Δ_i."""
    sizes = np.array([1, 2, 3, 4, 5, 5])
    delta = torch.tensor([[8.0, 1.0], [0.5, -1.0], [-4.0, 3.0], [0.1, 0.1], [2.0, 2.0], [-1.0, 6.0]]).double()
    here = view(sizes)
    steps = []
    for seed in range(draws):
        choice = chosen(rule, np.arange(6), replace(here, streams=Streams(seed)), Desk(delta=delta))
        assert choice.inclusion_prob is not None
        weights = here.weights[choice.clients] / choice.inclusion_prob
        steps.append(weights @ delta.numpy()[choice.clients])
    expected = here.weights @ delta.numpy()
    assert (np.abs(np.mean(steps, 0) - expected) < 4 * np.std(steps, 0) / np.sqrt(draws) + 1e-12).all()


def best_subset(apart: Floats, size: int) -> float:
    """The smallest G over all subsets of this size."""
    places = range(len(apart))
    return min(float(apart[list(s)].min(0).sum()) for s in itertools.combinations(places, size))
