"""The flat vector: every model goes in and comes out unchanged."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from turnout import models
from turnout.models import MLP
from turnout.models.layout import Layout

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
RULES = [
    (models.Softmax(zero_init=False), GREY),
    (models.Softmax(zero_init=False, bias=False), (6,)),
    (models.MLP(), (8, 8)),
    (models.CNN(), GREY),
    (models.LeafCNN(), (1, 8, 8)),
    (models.CharLSTM(hidden=16), (20,)),
    (models.LeNet5(), COLOUR),
    (models.FedExpCNN(), COLOUR),
    (models.EmnistCNN(), GREY),
    (models.ResNet18(), (3, 16, 16)),
    (models.VGG11(), COLOUR),
    (models.Family(server=models.MLP(hidden=(20,)), clients=(models.MLP(hidden=(4,)), models.Softmax())), (8, 8)),
    (models.Point(dim=5, start=0.5, dtype="float64"), (1,)),
]
every_rule = pytest.mark.parametrize(("rule", "shape"), RULES, ids=lambda value: getattr(type(value), "__name__", None))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(rule: models.ModelRule, shape: Any) -> Tensor:
    if isinstance(rule, models.CharLSTM):
        return torch.randint(10, (2, *shape), generator=seeded(1))
    return torch.randn(2, *shape, generator=seeded(1))


def with_statistics() -> nn.Sequential:
    """Return a module with buffers whose statistics have moved from their defaults."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    module(torch.arange(20.0).reshape(5, 4))
    return module


def test_contract_every_model_is_tested_here() -> None:
    assert {type(rule).__name__ for rule, _ in RULES} == set(models.__all__)


@every_rule
def test_property_flatten_then_load_gives_the_same_module(rule: Any | MLP, shape: tuple[int, ...]) -> None:
    source, target = rule.build(shape, 10, seeded(0)), rule.build(shape, 10, seeded(1))
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.fill_(-7.0)
    layout = Layout.of(source)
    flat = layout.flatten(source)
    assert flat.shape == (layout.size,) == (sum(p.numel() for p in source.parameters()),)
    assert layout.load(target, flat) is target
    loaded = dict(target.named_parameters())
    assert all(torch.equal(p, loaded[name]) for name, p in source.named_parameters())
    assert torch.equal(layout.flatten(target), flat)
    assert flat.dtype == next(source.parameters()).dtype
    assert not flat.requires_grad


@every_rule
def test_property_slots_tile_the_vector(rule: Any | MLP, shape: tuple[int, ...]) -> None:
    module = rule.build(shape, 10, seeded(0))
    layout = Layout.of(module)
    assert [slot.name for slot in layout.slots] == [name for name, _ in module.named_parameters()]
    edges = [0, *(slot.stop for slot in layout.slots)]
    assert [slot.start for slot in layout.slots] == edges[:-1]
    assert edges[-1] == layout.size


@every_rule
def test_identity_a_module_called_through_views_is_the_module(rule: Any | MLP, shape: tuple[int, ...]) -> None:
    module = rule.build(shape, 10, seeded(0)).eval()
    layout = Layout.of(module)
    x = inputs(rule, shape)
    views = layout.views(layout.flatten(module))
    assert {name: v.shape for name, v in views.items()} == {name: p.shape for name, p in module.named_parameters()}
    torch.testing.assert_close(functional_call(module, views, (x,)), module(x))


@every_rule
def test_property_the_vector_is_a_copy(rule: Any | MLP, shape: tuple[int, ...]) -> None:
    module = rule.build(shape, 10, seeded(0))
    layout = Layout.of(module)
    before = [p.detach().clone() for p in module.parameters()]
    layout.flatten(module).add_(1.0)
    flat = layout.flatten(module)
    layout.load(module, flat)
    flat.add_(1.0)  # neither direction shares memory with the module
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


@every_rule
def test_property_views_and_vector_see_each_other(rule: Any | MLP, shape: tuple[int, ...]) -> None:
    layout = Layout.of(rule.build(shape, 10, seeded(0)))
    flat = torch.zeros(layout.size)
    views = layout.views(flat)
    flat.copy_(torch.arange(layout.size))
    total = sum(view.double().sum().item() for view in views.values())
    assert total == pytest.approx(flat.double().sum().item(), rel=1e-12)
    for view in views.values():
        view.fill_(2.0)
    assert (flat == 2.0).all()


def test_golden_weight_matrices_lie_transposed() -> None:
    linear = nn.Linear(2, 16)
    with torch.no_grad():
        linear.weight.copy_(torch.arange(32.0).view(16, 2))
        linear.bias.copy_(torch.arange(100.0, 116.0))
    layout = Layout.of(linear)
    assert layout.flatten(linear).tolist() == [*range(0, 32, 2), *range(1, 32, 2), *range(100, 116)]
    weight, bias = layout.slots
    assert (weight.shape, weight.stored_shape, weight.transposed) == ((16, 2), (2, 16), True)
    assert (bias.shape, bias.stored_shape, bias.transposed) == ((16,), (16,), False)
    assert weight.view(layout.flatten(linear)).tolist() == linear.weight.tolist()


def test_golden_narrow_layers_lie_as_they_are() -> None:
    linear = nn.Linear(2, 15)
    weight = Layout.of(linear).slots[0]
    assert (weight.shape, weight.stored_shape, weight.transposed) == ((15, 2), (15, 2), False)
    assert Layout.of(linear).flatten(linear)[:30].tolist() == linear.weight.flatten().tolist()


def test_golden_linear_and_recurrent_matrices_are_transposed_and_no_others() -> None:
    module = nn.ModuleDict(
        {
            "convolution": nn.Conv2d(2, 3, 3),
            "text": models.CharLSTM(hidden=4, layers=1).build((5,), 16, seeded(0)),
            "norm": nn.GroupNorm(1, 3),
        }
    )
    swapped = {slot.name for slot in Layout.of(module).slots if slot.transposed}
    assert swapped == {"text.lstm.weight_ih_l0", "text.lstm.weight_hh_l0", "text.head.weight"}


def test_golden_buffers_are_the_floating_point_ones() -> None:
    module = with_statistics()
    layout = Layout.of(module)
    assert [slot.name for slot in layout.buffers] == ["1.running_mean", "1.running_var"]
    assert layout.buffer_size == 6
    expected = torch.cat([module[1].running_mean, module[1].running_var])  # type: ignore[list-item]
    assert torch.equal(layout.flatten_buffers(module), expected)
    assert layout.size == sum(p.numel() for p in module.parameters())


def test_property_buffers_round_trip_and_counters_stay() -> None:
    source = with_statistics()
    target = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    layout = Layout.of(source)
    layout.load(target, layout.flatten(source), layout.flatten_buffers(source))
    x = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(source.eval()(x), target.eval()(x))
    assert source[1].num_batches_tracked == 1
    assert target[1].num_batches_tracked == 0


def test_golden_loading_without_buffers_leaves_them_alone() -> None:
    source, target = with_statistics(), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    layout = Layout.of(source)
    layout.load(target, layout.flatten(source))
    assert target[1].running_mean.tolist() == [0, 0, 0]  # type: ignore[operator]
    assert target[1].running_var.tolist() == [1, 1, 1]  # type: ignore[operator]


def test_property_flattened_buffers_are_a_copy() -> None:
    module = with_statistics()
    layout = Layout.of(module)
    before = layout.flatten_buffers(module)
    layout.flatten_buffers(module).add_(1.0)
    module(torch.zeros(5, 4))
    assert not torch.equal(layout.flatten_buffers(module), before)
    layout.load(module, layout.flatten(module), before)
    assert torch.equal(layout.flatten_buffers(module), before)


def test_golden_a_module_without_parameters_is_an_empty_vector() -> None:
    layout = Layout.of(nn.Flatten())
    assert (layout.size, layout.buffer_size) == (0, 0)
    assert layout.flatten(nn.Flatten()).shape == layout.flatten_buffers(nn.Flatten()).shape == (0,)


def test_golden_a_shared_parameter_is_held_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    layout = Layout.of(module)
    assert layout.size == 9
    layout.load(module, torch.arange(9.0))
    assert module[1].weight is module[0].weight
    assert layout.flatten(module).tolist() == list(range(9))


@settings(max_examples=30)
@given(widths=st.lists(st.integers(1, 7), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_property_any_vector_survives_the_module(widths: list[int], seed: int) -> None:
    first, *hidden, last = widths
    module = models.MLP(hidden=tuple(hidden)).build((first,), last, seeded(0))
    layout = Layout.of(module)
    flat = torch.randn(layout.size, generator=seeded(seed))
    assert torch.equal(layout.flatten(layout.load(module, flat)), flat)
