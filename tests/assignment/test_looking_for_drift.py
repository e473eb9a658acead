"""FedDrift's start of a time step: what a fall is, who shares a model, what is merged, and what rules then forget."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turnout.assignment import Drift
from turnout.assignment.assigned import Assigned
from turnout.assignment.drift import Found
from turnout.coordinator import State
from turnout.coordinator.drifting import at_round
from turnout.coordinator.several import _take_over
from turnout.drift import Drift as DriftOf
from turnout.generators import relay
from turnout.protocols import Population
from turnout.requests import Probe, Probed
from turnout.streams import Streams


def by_accuracy(accuracy: Any) -> tuple[Any, Any]:
    """Return what asks for accuracies at a model, and a reply to it: `accuracy` by (model's value, client, blocks)."""
    ask = SimpleNamespace(losses=lambda clients, model: Probe(
        round=2, streams=Streams(0), model=model, buffers=None, clients=clients, what="loss"))  # fmt: skip

    def reply(request: Any) -> Any:
        yield from ()
        rows = zip(request.clients.tolist(), request.blocks, strict=True)
        values = np.array([accuracy(int(request.model[0]), client, blocks) for client, blocks in rows])
        return Probed(clients=request.clients, accuracy=values)

    return ask, reply


def looked(rule: Drift, found: Found, level: list[float], accuracy: Any) -> tuple[list[float], list[int]]:
    """Return the levels and the releases after looking for drift among all clients."""
    ask, reply = by_accuracy(accuracy)
    levels, release, count = np.array(level), np.zeros(len(level), dtype=np.int64), len(level)
    drift = DriftOf(np.full((count, 3), 10), np.zeros((count, 3), dtype=np.int64), 1)
    assert list(relay(rule._look(found, np.arange(count), (levels, release), ask, drift), reply)) == []
    return levels.tolist(), release.tolist()


def test_golden_a_drift_is_a_fall_of_more_than_the_threshold() -> None:
    found = Found(torch.arange(4.0)[:, None], np.array([[0, 0], [0, 0], [0, 0]]), step=1)
    accuracies = (0.5, 0.25, 1.0)
    level, release = looked(Drift(threshold=0.25), found, [0.75, 0.75, 0.25], lambda _, client, __: accuracies[client])
    assert level == [0.5, 0.25, 1.0]
    assert found.blocks.tolist() == [[0, 0], [0, 1], [0, 0]]  # the first fell by exactly 0.25
    assert release == [0, 2, 0]


@pytest.mark.parametrize("eager", [False, True])
def test_golden_all_that_drift_share_a_new_model_if_eager(eager: bool) -> None:
    found = Found(torch.arange(4.0)[:, None], np.array([[0, 0], [0, 0], [0, 0]]), step=1)
    wait: dict[str, Any] = {} if eager else {"wait": 2}
    _, release = looked(Drift(eager=eager, **wait), found, [1.0, 0.0, 1.0], lambda *_: 0.0)
    assert found.blocks[:, 1].tolist() == ([1, 0, 1] if eager else [1, 0, 2])
    assert release == ([1, 0, 1] if eager else [3, 0, 3])  # alone while the release is later than the time step


@pytest.mark.parametrize(("bound", "models"), [(0.24, 2), (0.26, 1)])
def test_golden_accuracies_of_a_model_are_weighed_by_blocks_and_a_merger_begins_anew(bound: float, models: int) -> None:
    # model 0 trained on three blocks of client 0 and one of client 1, on which model 1 has 1 and 0: a_00 − a_01 is 1/4
    found = Found(torch.arange(2.0)[:, None], np.array([[0, 0, 0, 0], [0, 1, 1, 1]]), step=3)

    def accuracy(model: int, client: int, blocks: Any) -> float:
        return 1.0 if model == 0 or blocks[1] else 0.0 if client == 1 else 1.0

    ask, reply = by_accuracy(accuracy)
    rule = Drift(threshold=bound, distance="theirs")
    assert list(relay(rule._merge(found, np.arange(2), np.arange(2), ask), reply)) == []
    assert len(np.unique(found.blocks)) == models
    assert found.fresh == ([0] if models == 1 else [])
    assert found.events == (["models 1 merged into model 0"] if models == 1 else [])


def test_golden_models_are_merged_although_nobody_has_the_samples_of_another() -> None:
    found = Found(torch.tensor([[1.0], [3.0], [9.0]]), np.array([[0, 0], [1, 1], [2, 2]]), step=1)
    here, asked = np.array([0, 1]), list[list[int]]()
    ask: Any = SimpleNamespace(losses=lambda clients, model: Probe(
        round=2, streams=Streams(0), model=model, buffers=None, clients=clients, what="loss"))  # fmt: skip

    def reply(request: Any) -> Any:
        asked.append(request.clients.tolist())
        yield from ()
        return Probed(clients=request.clients, accuracy=np.ones(len(request.clients)))

    assert list(relay(Drift()._merge(found, np.array([0, 1, 2]), here, ask), reply)) == []
    assert asked == [[0], [0], [1], [1]]
    assert found.models[:, 0].tolist() == [2.0, 3.0, 9.0]
    assert found.blocks.tolist() == [[0, 0], [0, 0], [2, 2]]


def test_contract_rules_forget_what_they_remember_of_a_model_that_was_changed() -> None:
    state = State.start(torch.zeros(2), Population.of(np.ones(3, dtype=np.int64)), models=torch.zeros(2, 2))
    state.server = state.aggregation = {"model 0 m": torch.ones(2), "model 1 m": torch.ones(2)}
    state.measured_models = torch.full((2, 2), 7.0)
    _take_over(state, Assigned(model_of=np.zeros(3, dtype=np.int64), models=torch.full((2, 2), 5.0), fresh=(1,)))
    assert list(state.server) == list(state.aggregation) == ["model 0 m"]
    assert state.measured_models.tolist() == [[7.0, 7.0], [5.0, 5.0]]
    assert state.model.tolist() == [5.0, 5.0]


def test_golden_what_clients_train_on_and_are_measured_on_at_each_round() -> None:
    drift = DriftOf(np.array([[1, 2, 4], [10, 20, 40]]), np.zeros((2, 3), dtype=np.int64), rounds_per_step=2)
    people = replace(Population.of(np.array([1, 10])), drift=drift)
    expected = {0: ([1, 10], [1, 10]), 1: ([1, 10], [2, 20]), 2: ([1, 10], [2, 20]), 3: ([3, 30], [4, 40])}
    for round, (trained, measured) in expected.items():
        now = at_round(people, round)
        assert now.sizes.tolist() == trained
        assert now.holdout_sizes is not None
        assert now.holdout_sizes.tolist() == measured
        assert now.weights.tolist() == [pytest.approx(1 / 11), pytest.approx(10 / 11)]
