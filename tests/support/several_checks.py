"""Checks of rules for several models; the tests of mutants break the rules and expect them to fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.support.several_runs import (
    losses_by_hand,
    model_of,
    models_of,
    network,
    quadratics,
    several_run,
    starts,
)
from tests.support.tasks import holdout_of
from turnout import losses
from turnout.assignment import Drift, LowestLoss
from turnout.assignment import drift as drift_rule
from turnout.assignment.drift import Found
from turnout.data import ConceptDrift
from turnout.engine import Task
from turnout.local import SGD
from turnout.models import Softmax
from turnout.streams import Streams

LOCAL = SGD(lr=2.0, steps=5)
STAGGERED = "0 0 0 0\n0 1 0 0\n0 1 0 1\n0 1 1 1\n0 1 1 1\n0 1 1 1\n"  # time steps × clients


def assert_one_round_by_hand() -> None:
    """One round by hand."""
    # F_i = ½ h ‖x‖² − e·x, one step of rate 0.1: x ← x + 0.1 (e − h x). Model 0 at (1, 0): clients 0 and 2, with
    # h = 1, 2 and e = (3, 0), (4, 1): (1.2, 0) and (1.2, 0.1); their mean is (1.2, 0.05). Model 1 mirrors it.
    models = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [50.0, 50.0]], dtype=torch.float64)
    state, records = several_run(
        quadratics(), LowestLoss(num_models=3), models=models, rounds=1, local=SGD(lr=0.1, steps=1)
    )

    assert models_of(state).tolist() == [
        [pytest.approx(1.2, abs=1e-15), pytest.approx(0.05, abs=1e-15)],
        [pytest.approx(-1.2, abs=1e-15), pytest.approx(0.05, abs=1e-15)],
        [50.0, 50.0],
    ]
    assert records[1].coefficients.tolist() == [0.5, 0.5, 0.5, 0.5]


def assert_equal_initial_models_are_noted_and_ties_go_to_the_first() -> None:
    """Equal initial models are noted and ties go to the first."""
    task = network()
    models = task.layout.flatten(task.module).repeat(2, 1)
    state, records = several_run(task, LowestLoss(num_models=2), models=models, rounds=1)

    assert any("models 0 and 1 start with the same weights" in event for event in records[0].events)
    assert torch.equal(models_of(state)[1], models[1])
    assert (model_of(records[1]) == 0).all()


def assert_clients_choose_on_their_training_samples() -> None:
    """Clients choose on their training samples."""
    task = network()
    held = holdout_of(task.federation)  # on which labels are others, so that other models have the lowest loss
    task = replace(task, federation=replace(task.federation, holdout=replace(held, y=(held.y + 1) % 3)))
    models = starts(task, 3)
    by_hand = np.stack([losses_by_hand(task, model) for model in models])
    _, records = several_run(task, LowestLoss(num_models=3), models=models, rounds=1)
    assert model_of(records[1]).tolist() == by_hand.argmin(0).tolist()


def assert_distances_by_hand() -> None:
    """Distances by hand."""
    scores = np.array([[0.9, 0.5], [0.6, 0.8]])
    assert drift_rule.distances(scores)[0, 1] == pytest.approx(0.4)  # max(0.9 − 0.5, 0.8 − 0.6)
    assert drift_rule.distances(scores, swapped=True)[0, 1] == pytest.approx(0.3)  # max(0.9 − 0.6, 0.8 − 0.5)
    better_abroad = np.array([[0.5, 0.9], [0.7, 0.6]])
    assert drift_rule.distances(better_abroad)[0, 1] == 0.0  # max(0.5 − 0.9, 0.6 − 0.7, 0)


def drifting(folder: Path, changes: str = STAGGERED, **settings: Any) -> Task:
    """Return clients whose labels are the other way round from a time step of their own on."""
    file = folder / "changes.txt"
    file.write_text(changes)
    data = ConceptDrift(change_points=file, **({"rounds_per_step": 4, "samples": 50} | settings))
    module = Softmax().build((2,), 2, torch.Generator().manual_seed(0))
    federation = data.build(Streams(0))
    return Task(federation=federation, module=module, loss=losses.cross_entropy)


def assert_a_merger_weighs_models_by_their_blocks_and_keeps_the_number_of_blocks() -> None:
    """A merger weighs models by their blocks and keeps the number of blocks."""
    blocks = np.array([[0, 0, 0, -1], [0, 2, 2, -1], [1, 1, 1, -1]])
    models = torch.tensor([[1.0, 0.0], [7.0, 7.0], [4.0, 8.0]], dtype=torch.float64)
    found = Found(models, blocks.copy(), step=2)
    found.merge([0, 2])

    assert found.models[0].tolist() == [
        pytest.approx((3 * 1 + 4) / 4),
        pytest.approx((3 * 0 + 8) / 4),
    ]  # 3 and 1 blocks
    assert found.blocks.tolist() == [[0, 0, 0, -1], [0, 0, 0, -1], [1, 1, 1, -1]]
    assert (found.blocks >= 0).sum() == (blocks >= 0).sum()
    assert models[0].tolist() == [1.0, 0.0]  # those of the last record


def assert_a_new_model_is_a_copy_and_forgets_who_used_its_slot() -> None:
    """A new model is a copy and forgets who used its slot."""
    models = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = Found(models, np.array([[0, 0, 0], [1, 0, 0]]), step=2)
    found.start(1, like=0)
    assert found.models.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert found.blocks.tolist() == [[0, 0, 0], [-1, 0, 0]]
    assert found.fresh == [1]
    assert models[1].tolist() == [3.0, 4.0]  # those of the last record


def assert_models_of_clients_that_train_alone_are_no_candidates() -> None:
    """Models of clients that train alone are no candidates."""
    found = Found(torch.zeros(4, 1), np.array([[0, 0, 0, -1], [0, 2, 2, -1], [0, 0, 1, -1]]), step=3)
    assert found.candidates(np.array([], dtype=np.int64)).tolist() == [0, 1, 2]
    assert found.candidates(np.array([1])).tolist() == [0, 1]


def assert_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained(tmp_path: Path) -> None:
    """The level before is that of the untrained model and after that of the trained."""
    # labels turn round in the second time step, where the trained model has hardly one right
    task, found = drifting(tmp_path, "0 0\n0 1\n0 1\n"), {}
    for compare in ("before", "after"):
        rule = Drift(num_models=3, threshold=0.75, compare=cast(Any, compare))
        state, _ = several_run(task, rule, models=alike(task, 3), rounds=5, local=LOCAL)
        found[compare] = state.assignment["blocks"][:, 1].tolist()
    assert found == {"before": [0, 0], "after": [0, 1]}


def alike(task: Task, count: int) -> torch.Tensor:
    """Return so many copies of the first model."""
    return task.layout.flatten(task.module).repeat(count, 1)
