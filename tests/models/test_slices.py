"""Slices: which units belong together, what a slice computes, and which modules cannot be cut."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.width_runs import TASKS, masked_output, slices_of
from turnout.errors import ConfigError
from turnout.models.layout import Layout
from turnout.models.members import multiply_adds
from turnout.models.resnet18 import Block
from turnout.models.slices import Slices

SIZES = {"mlp": (8, 6), "cnn": (32, 64, 12), "lstm": (4, 6)}


@pytest.mark.parametrize("name", TASKS)
def test_golden_hidden_layers_are_the_groups_of_units(name: str) -> None:
    assert slices_of(TASKS[name]()).sizes == SIZES[name]


def test_golden_a_residual_network_cuts_added_layers_together() -> None:
    stem = (nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
    blocks = (Block(4, 4, 1, 2), Block(4, 8, 2, 2))
    module = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    slices = Slices.of(module, torch.zeros(1, 3, 8, 8))
    assert slices.sizes == (4, 4, 8, 8)  # the stem and what is added to it, inside block 1, inside block 2, its output
    groups = {layer.name: layer.group for layer in slices.anatomy.layers}
    assert [groups[name] for name in ("0", "1", "3.main.0", "3.main.3", "3.main.4")] == [0, 0, 1, 0, 0]
    assert [groups[name] for name in ("4.main.0", "4.main.3", "4.shortcut.0", "4.shortcut.1")] == [2, 3, 3, 3]
    assert slices.cut((2, 4, 4, 2))(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_property_a_slice_computes_what_the_whole_computes_without_the_others(name: str, data: st.DataObject) -> None:
    task = TASKS[name]()
    slices, flat = slices_of(task), task.layout.flatten(task.module)
    units = [
        np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size))))
        for size in slices.sizes
    ]
    submodel = slices.submodel(units)
    cut = slices.cut(submodel.sizes)
    Layout.of(cut).load(cut, flat[submodel.columns])
    x = task.federation.train.fetch(np.arange(1)).x[:3]
    with torch.no_grad():
        torch.testing.assert_close(cut.eval()(x), masked_output(slices, flat, units, x))


@pytest.mark.parametrize("name", TASKS)
def test_property_columns_are_distinct_and_the_slice_has_as_many_parameters(name: str) -> None:
    slices = slices_of(TASKS[name]())
    units = [np.arange(0, size, 2) for size in slices.sizes]
    submodel = slices.submodel(units)
    assert len(set(submodel.columns.tolist())) == len(submodel.columns) == Layout.of(slices.cut(submodel.sizes)).size


def test_identity_all_units_are_the_whole_model() -> None:
    slices = slices_of(TASKS["mlp"]())
    whole = slices.submodel([np.arange(size) for size in slices.sizes])
    assert whole.is_whole
    assert whole.step_cost == 1.0
    assert torch.equal(whole.columns, torch.arange(slices.layout.size))


@pytest.mark.parametrize("name", TASKS)
def test_identity_a_slice_of_a_slice_is_a_slice(name: str) -> None:
    task = TASKS[name]()
    slices, flat = slices_of(task), task.layout.flatten(task.module)
    half, quarter = ([np.arange(-(-size // by)) for size in slices.sizes] for by in (2, 4))
    cut = slices.cut([len(each) for each in half])
    inner = Slices.of(cut, slices.sample)
    once = flat[slices.submodel(half).columns][inner.submodel(quarter).columns]
    assert torch.equal(once, flat[slices.submodel(quarter).columns])


def test_golden_the_cost_of_a_step_is_its_share_of_the_multiplications() -> None:
    slices = slices_of(TASKS["mlp"]())  # 5 → 8 → 6 → 3
    submodel = slices.submodel([np.arange(4), np.arange(3)])
    assert submodel.step_cost == pytest.approx((5 * 4 + 4 * 3 + 3 * 3) / (5 * 8 + 8 * 6 + 6 * 3))
    assert submodel.columns.numel() == (5 * 4 + 4) + (4 * 3 + 3) + (3 * 3 + 3)


@pytest.mark.parametrize("name", TASKS)
def test_identity_the_cost_is_the_multiplications_of_the_slices_own_pass(name: str) -> None:
    slices = slices_of(TASKS[name]())
    half = [np.arange(-(-size // 2)) for size in slices.sizes]
    products = [
        multiply_adds(slices.cut([len(each) for each in units]), slices.sample) for units in (half, whole_of(slices))
    ]
    assert slices.submodel(half).step_cost == pytest.approx(products[0] / products[1])


def whole_of(slices: Slices) -> list[Any]:
    return [np.arange(size) for size in slices.sizes]


def test_golden_multiplications_of_each_type_of_layer() -> None:
    images, words = torch.zeros(1, 4, 5, 5), torch.zeros(1, 7, 4)
    assert multiply_adds(nn.Conv2d(4, 8, 3), images) == 8 * 3 * 3 * 4 * 9
    assert multiply_adds(nn.Conv2d(4, 8, 3, groups=2), images) == 8 * 3 * 3 * 2 * 9
    assert multiply_adds(nn.Linear(4, 3), words) == 7 * 4 * 3
    assert multiply_adds(First(nn.LSTM(4, 6, num_layers=2, batch_first=True)), words) == 7 * 4 * 6 * (4 + 6 + 6 + 6)
    assert multiply_adds(nn.Embedding(9, 5), torch.zeros(1, 7, dtype=torch.int64)) == 1  # at least


class First(nn.Module):
    """A recurrent layer whose outputs alone are returned."""

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)[0]
        return out


def test_property_cutting_draws_no_random_numbers() -> None:
    slices = slices_of(TASKS["lstm"]())
    before = torch.get_rng_state()
    slices.cut((2, 3))
    assert torch.equal(before, torch.get_rng_state())


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.b(torch.relu(self.a(x)))))
        return out


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.a(torch.relu(self.a(x)))))
        return out


class HardCoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.a(x)).view(-1, 6))
        return out


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.softmax(self.a(x), 1))
        return out


class OwnParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head, self.scale = nn.Linear(4, 6), nn.Linear(6, 3), nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.a(x) * self.scale)
        return out


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    module[0].weight.requires_grad_(False)
    return module


REFUSED = {
    "shared weights": (Shared(), "a.weight and b.weight are one parameter that two layers share"),
    "a layer used twice": (Twice(), "a is used more than once"),
    "a mixing function": (Mixing(), "an input of head depends on several units of a"),
    "a parameter of its own": (OwnParameter(), "it is a OwnParameter, a type of layer that cannot be cut"),
    "frozen weights": (frozen(), "its parameter 0.weight is frozen"),
    "running statistics": (
        nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)),
        r"it has running statistics \(1.running_mean\)",
    ),
    "no hidden layer": (nn.Sequential(nn.Linear(4, 3)), "it has no hidden units"),
    "grouped convolution": (
        nn.Sequential(nn.Conv2d(2, 4, 1, groups=2), nn.Flatten(), nn.Linear(4, 3)),
        "0 is a convolution with groups",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_error_a_module_that_cannot_be_cut_says_why(name: str) -> None:
    module, reason = REFUSED[name]
    x = torch.zeros(1, 2, 1, 1) if name == "grouped convolution" else torch.zeros(1, 4)
    with pytest.raises(ConfigError, match=f"cannot: {reason}.*leave width out"):
        Slices.of(module, x)


def test_error_a_hard_coded_shape_is_found_when_the_module_is_cut() -> None:
    slices = Slices.of(HardCoded(), torch.zeros(1, 4))
    with pytest.raises(ConfigError, match="HardCoded cannot: with fewer units it fails"):
        slices.cut((3,))


def test_error_a_group_norm_that_does_not_divide_says_so() -> None:
    module = nn.Sequential(nn.Conv2d(1, 8, 1), nn.GroupNorm(4, 8), nn.Flatten(), nn.Linear(32, 3))
    slices = Slices.of(module, torch.zeros(1, 1, 2, 2))
    assert slices.cut((4,))(torch.zeros(1, 1, 2, 2)).shape == (1, 3)
    with pytest.raises(ConfigError, match="1 normalises 4 groups of channels, and 6 channels cannot be divided"):
        slices.cut((6,))
