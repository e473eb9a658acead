"""Unit groups: marks of all layers at once tell the same as marks of each layer, and of each unit, by itself."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.width_runs import TASKS
from turnout.models import ResNet18
from turnout.models.resnet18 import Block
from turnout.models.unit_groups import CannotCutError, Trace, anatomy_of


class Branches(nn.Module):
    """Two layers side by side, concatenated, and a third one that is added to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 5), nn.Linear(3, 6), nn.Linear(3, 5)
        self.join, self.head = nn.Linear(11, 4), nn.Linear(9, 2)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.a(x), self.b(x), self.c(x)
        a += c
        joined = torch.relu(self.join(torch.cat([b, a], 1)))
        out: Tensor = self.head(torch.cat([joined, c], 1))
        return out


def residual() -> nn.Module:
    stem = (nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
    blocks = (Block(4, 4, 1, 2), Block(4, 8, 2, 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def traced(name: str) -> Trace:
    if name in TASKS:
        task = TASKS[name]()
        return Trace(task.module, task.federation.train.fetch(np.arange(1)).x[:1])
    module, shape = {"branches": (Branches(), (3,)), "residual": (residual(), (3, 8, 8))}[name]
    return Trace(module, torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", [*TASKS, "branches", "residual"])
def test_identity_all_layers_at_once_are_each_layer_by_itself(name: str) -> None:
    trace = traced(name)
    together = trace.follow_all()
    for maker, reached in together.items():
        alone = trace.follow(maker)
        assert reached.at_output == alone.at_output
        assert reached.units.keys() == alone.units.keys()
        assert all(np.array_equal(reached.units[reader], alone.units[reader]) for reader in alone.units)


@pytest.mark.parametrize("name", [*TASKS, "branches", "residual"])
def test_golden_marks_of_one_unit_at_a_time_reach_the_same_inputs(name: str) -> None:
    trace = traced(name)
    for maker, reached in trace.follow_all().items():
        expected = {reader: np.full(len(units), -1) for reader, units in reached.units.items()}
        for unit in range(trace.counts[maker]):
            one = torch.arange(trace.counts[maker]) == unit
            for reader, marks in trace.run({maker: one})[0].items():
                if marks.any():
                    expected[reader][marks.numpy()] = unit
        assert all(np.array_equal(expected[reader], units) for reader, units in reached.units.items())


def test_golden_the_inputs_of_a_concatenation_are_the_units_of_two_layers() -> None:
    layers = {layer.name: layer for layer in anatomy_of(Branches(), torch.ones(1, 3)).layers}
    assert [layers[name].group for name in ("a", "b", "c", "join", "head")] == [0, 1, 0, 2, -1]
    assert layers["join"].feature_groups.tolist() == [1] * 6 + [0] * 5
    assert layers["join"].feature_units.tolist() == [*range(6), *range(5)]
    assert layers["head"].feature_groups.tolist() == [2] * 4 + [0] * 5


def test_golden_a_residual_network_of_the_usual_size_has_a_group_per_stage_and_one_inside_each_block() -> None:
    module = ResNet18().build((3, 32, 32), 10, torch.Generator().manual_seed(0))
    sizes = anatomy_of(module, torch.zeros(1, 3, 32, 32)).sizes
    assert sorted(sizes) == sorted([64] * 3 + [128] * 3 + [256] * 3 + [512] * 3)


class Decoder(nn.Module):
    """A recurrent layer whose first state is another one's last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.LSTM(3, 4, batch_first=True), nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.b(x, self.a(x)[1])[0][:, -1])
        return out


class Swapped(nn.Module):
    """Two layers that are added up in opposite orders."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.a(x) + self.b(x).flip(1))
        return out


@pytest.mark.parametrize(
    ("module", "shape", "reason"),
    [
        (Decoder(), (5, 3), "b gets units of another layer beside its input"),
        (Swapped(), (3,), "head adds up different units of b and a"),
    ],
)
def test_error_units_that_cannot_be_told_apart_say_why(module: nn.Module, shape: Any, reason: str) -> None:
    with pytest.raises(CannotCutError, match=reason):
        anatomy_of(module, torch.ones(1, *shape))
