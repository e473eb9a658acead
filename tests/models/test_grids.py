"""Grids: reading submodels from the whole vector and adding to it, against a position for every parameter."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.width_runs import TASKS, mlp, slices_of
from turnout.engine import Task
from turnout.models.slices import Slices
from turnout.parameter_grids import Grids, Place, PlaceRows
from turnout.submodels import Parts, Submodel

# of 20 units 8 are kept: their layer is stored as (units, inputs), and the whole layer the other way round
MODELS: dict[str, Callable[[], Task]] = {**TASKS, "turned": lambda: mlp(hidden=(20, 20))}


def own_units(task: Task, count: int) -> list[Submodel]:
    """Return submodels of one size with random units of their own."""
    slices, rng = slices_of(task), np.random.default_rng(0)
    kept = [max(1, 2 * size // 5) for size in slices.sizes]
    units = [
        np.stack([np.sort(rng.permutation(size)[:few]) for _ in range(count)])
        for size, few in zip(slices.sizes, kept, strict=True)
    ]
    return slices.submodels(units)


def grids_of(submodels: list[Submodel]) -> Grids:
    """Return the grids that these submodels share."""
    places = [submodel.where for submodel in submodels]
    assert all(isinstance(place, Place) and place.grids is submodels[0].among for place in places)
    assert isinstance(places[0], Place)
    return places[0].grids


@pytest.mark.parametrize("name", MODELS)
def test_identity_submodels_cut_together_lie_where_each_alone_lies(name: str) -> None:
    task = MODELS[name]()
    slices, rng = slices_of(task), np.random.default_rng(1)
    units = [np.stack([np.sort(rng.permutation(size)[: -(-size // 3)]) for _ in range(3)]) for size in slices.sizes]
    for row, submodel in enumerate(slices.submodels(units)):
        alone = slices.submodel([each[row] for each in units])
        assert isinstance(alone.where, Tensor)
        assert torch.equal(submodel.columns, alone.where)
        assert submodel.num_parameters == len(alone.where) == alone.num_parameters


@pytest.mark.parametrize("name", MODELS)
def test_golden_submodels_are_read_and_added_parameter_by_parameter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = MODELS[name]()
    submodels, flat = own_units(task, 5), task.layout.flatten(task.module)
    grids, some = grids_of(submodels), np.array([3, 0, 4])
    rows = grids.read(flat, some)
    assert torch.equal(rows, torch.stack([flat[submodels[number].columns] for number in some]))
    starts = PlaceRows(np.array([2, 5, 7]), flat, grids, some)
    assert torch.equal(starts.read(np.array([7, 2])), rows[[2, 0]])
    runs = [grid.own for grid in grids.grids]
    for run, part in zip(runs, starts.parts(np.array([7, 2]), runs), strict=True):
        assert torch.equal(part, rows[[2, 0], run])
    monkeypatch.setattr("turnout.parameter_grids.WHOLE_BYTES", 2 * 8 * len(flat))  # two rows at a time, then one
    weights, total, expected = np.array([0.5, 0.25, 2.0]), torch.ones_like(flat), torch.ones_like(flat)
    grids.add(total, some, rows, weights)
    for number, row, weight in zip(some, rows, weights, strict=True):
        expected[submodels[number].columns] += weight * row
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("name", MODELS)
def test_golden_the_mean_is_over_those_that_train_a_parameter(name: str) -> None:
    submodels, size = own_units(task := MODELS[name](), 4), task.layout.size
    whole = Submodel((), torch.arange(size), 1.0, is_whole=True)
    clients, coefficients = np.arange(10, 16), np.array([0.1, 0.2, 0.25, 0.3, 0.05, 0.1])
    which = np.array([2, 0, 4, 1, 3, 0])  # the third trains everything
    parts = Parts(clients=clients, submodels=(*submodels, whole), which=which, size=size)
    covered = torch.zeros(size, dtype=torch.float64)
    for number, weight in zip(which, coefficients, strict=True):
        covered[parts.submodels[number].columns] += weight
    torch.testing.assert_close(parts.balance(clients, coefficients), 1.0 / covered)
    four = np.array([0, 1, 3, 4])
    some = parts.balance(clients[four], coefficients[four])
    covered.zero_()
    for number, weight in zip(which[four], coefficients[four], strict=True):
        covered[parts.submodels[number].columns] += weight
    torch.testing.assert_close(some, torch.where(covered > 0, 0.65 / covered, torch.zeros_like(covered)))
    assert (some == 0).any()
    assert (some == 1).any()  # exactly, where all four train it


def test_contract_slices_of_a_kind_remember_no_units() -> None:
    slices: Slices = slices_of(mlp())
    first, second = (slices.submodels([np.array([[0, 1]]), np.array([[low, 5]])])[0] for low in (0, 3))
    assert first.step_cost == second.step_cost
    assert not torch.equal(first.columns, second.columns)
