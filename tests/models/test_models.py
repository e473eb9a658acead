"""Every reference model: its size, its layers, where its weights come from, and the shapes it cannot take."""

import dataclasses
import math
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from turnout import models
from turnout.errors import ConfigError
from turnout.losses import quadratic
from turnout.models import VGG11, EmnistCNN
from turnout.models.cnn import same_cnn
from turnout.models.initialise import build_initialised, initialise
from turnout.models.mlp import perceptron
from turnout.models.resnet18 import resnet18
from turnout.models.user_modules import UserModule

GREY, COLOUR, TEXT = (1, 28, 28), (3, 32, 32), (80,)
COUNTS = [
    (models.Softmax(), (60,), 10, 610),
    (models.Softmax(bias=False), (60,), 10, 600),
    (models.Softmax(), GREY, 10, 7_850),
    (models.MLP(), GREY, 10, 199_210),
    (models.MLP(), GREY, 47, 206_647),
    (models.MLP(), GREY, 62, 209_662),
    (models.MLP(hidden=(64, 30)), GREY, 10, 52_500),
    (models.MLP(hidden=(128, 86, 30)), (200,), 2, 39_494),
    (models.CNN(), GREY, 10, 1_663_370),
    (models.CNN(), GREY, 47, 1_682_351),
    (models.CNN(), GREY, 62, 1_690_046),
    (models.LeafCNN(), GREY, 62, 6_603_710),
    (models.CharLSTM(), TEXT, 80, 819_920),
    (models.LeNet5(), COLOUR, 10, 62_006),
    (models.LeNet5(dense=(120, 100, 84, 50)), COLOUR, 10, 76_336),
    (models.FedExpCNN(), COLOUR, 10, 744_330),
    (models.EmnistCNN(), GREY, 62, 1_206_590),
    (models.ResNet18(), COLOUR, 10, 11_173_962),
    (models.ResNet18(), COLOUR, 100, 11_220_132),
    (models.VGG11(), COLOUR, 10, 9_750_922),
    (models.Point(dim=7), (1,), 3, 7),
    (models.Family(server=models.MLP(), clients=(models.Softmax(), models.MLP())), GREY, 10, 7_850 + 2 * 199_210),
]
RULES = [
    (models.Softmax(), GREY),
    (models.MLP(), (8, 8)),
    (models.CNN(), GREY),
    (models.LeafCNN(), (1, 8, 8)),
    (models.CharLSTM(), (20,)),
    (models.LeNet5(), COLOUR),
    (models.FedExpCNN(), COLOUR),
    (models.EmnistCNN(), GREY),
    (models.ResNet18(), (3, 16, 16)),
    (models.VGG11(), COLOUR),
    (models.Point(dim=10, start=0.5), (1,)),
    (models.Family(server=models.MLP(), clients=(models.Softmax(),)), (8, 8)),
]
LEAST = [
    (models.CNN(), 4),
    (models.LeafCNN(), 4),
    (models.LeNet5(), 16),
    (models.FedExpCNN(), 16),
    (models.EmnistCNN(), 6),
    (models.VGG11(), 32),
]
LAYERS = {  # conv and linear layers by their output, in order
    models.CNN(): "conv32 relu pool conv64 relu pool flat 512 relu 10",
    models.LeafCNN(): "conv32 relu pool conv64 relu pool flat 2048 relu 10",
    models.LeNet5(): "conv6 relu pool conv16 relu pool flat 120 relu 84 relu 10",
    models.FedExpCNN(): "conv32 relu pool conv64 relu pool flat 384 relu 192 relu 10",
    models.EmnistCNN(): "conv32 relu conv64 relu pool drop0.25 flat 128 relu drop0.5 10",
    models.MLP(hidden=(5,)): "flat 5 relu 10",
    models.Softmax(): "flat 10",
    models.VGG11(): "conv64 relu pool conv128 relu pool conv256 relu conv256 relu pool conv512 relu conv512 relu pool "
    "conv512 relu conv512 relu pool flat drop0.5 512 relu drop0.5 512 relu 10",
}


def name_of(value: object) -> str | None:
    """Name a case by its rule; leave shapes and numbers to pytest."""
    return type(value).__name__ if dataclasses.is_dataclass(value) else None


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def samples(rule: models.ModelRule, shape: Any, count: int = 2) -> Tensor:
    if isinstance(rule, models.CharLSTM):
        return torch.randint(10, (count, *shape), generator=seeded(1))
    return torch.randn(count, *shape, generator=seeded(1))


def spelt(module: nn.Module) -> str:
    words = {
        nn.Conv2d: lambda m: f"conv{m.out_channels}",
        nn.Linear: lambda m: str(m.out_features),
        nn.ReLU: lambda _: "relu",
        nn.MaxPool2d: lambda _: "pool",
        nn.Flatten: lambda _: "flat",
        nn.Dropout: lambda m: f"drop{m.p}",
    }
    return " ".join(words[type(layer)](layer) for layer in module)  # type: ignore[attr-defined, no-untyped-call]


@pytest.mark.parametrize(("rule", "shape", "outputs", "count"), COUNTS, ids=name_of)
def test_golden_parameters_are_counted_as_published(
    rule: Any, shape: tuple[int, ...], outputs: int, count: int
) -> None:
    module: Any = rule.build(shape, outputs, seeded(0))
    assert sum(p.numel() for p in module.parameters()) == count


@pytest.mark.parametrize(("rule", "layers"), LAYERS.items(), ids=name_of)
def test_golden_layers_come_in_the_published_order(rule: Any, layers: str) -> None:
    assert spelt(rule.build(COLOUR, 10, seeded(0))) == layers


def test_contract_every_listed_model_is_tested_here() -> None:
    assert {type(rule).__name__ for rule, _ in RULES} == set(models.__all__)
    assert {type(rule).__name__ for rule, *_ in COUNTS} == set(models.__all__)


def test_contract_every_model_has_a_file_of_its_own_and_is_listed() -> None:
    files = [f"turnout.models.{path.stem}" for path in Path(models.__file__).parent.glob("[!_]*.py")]
    rules = [
        name
        for file in files
        for name, value in vars(import_module(file)).items()
        if dataclasses.is_dataclass(value) and hasattr(value, "build") and value.__module__ == file
        if value is not UserModule  # wraps a module of one's own
    ]
    assert sorted(rules) == sorted(models.__all__)
    assert len({getattr(models, name).__module__ for name in rules}) == len(rules)


@pytest.mark.parametrize(("rule", "shape"), RULES, ids=name_of)
def test_contract_each_sample_gives_one_row_of_outputs(rule: Any, shape: tuple[int, ...]) -> None:
    module: Any = rule.build(shape, 10, seeded(0)).eval()
    out = module(samples(rule, shape, 3))
    assert out.shape == (3, 10)
    assert torch.isfinite(out).all()
    alone = module(samples(rule, shape, 3)[1:2])  # nothing is shared between samples
    torch.testing.assert_close(out[1:2], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rule", "shape"), RULES, ids=name_of)
def test_contract_a_trace_holds_torch_layers_only_and_agrees(rule: Any, shape: tuple[int, ...]) -> None:
    module: Any = rule.build(shape, 10, seeded(0)).eval()
    traced = fx.symbolic_trace(module)
    called = [traced.get_submodule(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    assert all(type(layer).__module__.startswith("torch.nn.") for layer in called)
    held = {id(p) for layer in called for p in layer.parameters()}
    fetched = {id(traced.get_parameter(node.target)) for node in traced.graph.nodes if node.op == "get_attr"}
    used = module.server if isinstance(rule, models.Family) else module
    assert held | fetched == {id(p) for p in used.parameters()}
    x = samples(rule, shape)
    assert torch.equal(traced(x), module(x))


@pytest.mark.parametrize(("rule", "shape"), RULES, ids=name_of)
def test_contract_weights_depend_on_the_generator_alone(rule: Any, shape: tuple[int, ...]) -> None:
    build: Callable[..., Any] = lambda seed: list(rule.build(shape, 10, seeded(seed)).parameters())  # noqa: E731
    first = build(3)
    torch.rand(5)  # the global state has moved on; the weights must not care
    assert all(torch.equal(a, b) for a, b in zip(first, build(3), strict=True))
    assert all(p.requires_grad and p.device.type == "cpu" and torch.isfinite(p).all() for p in first)
    fixed = isinstance(rule, models.Softmax | models.Point)
    assert all(torch.equal(a, b) for a, b in zip(first, build(4), strict=True)) == fixed


@pytest.mark.parametrize(("rule", "shape"), RULES, ids=name_of)
def test_contract_no_global_randomness_is_used(rule: Any, shape: tuple[int, ...]) -> None:
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # type: ignore[index] # noqa: NPY002
    rule.build(shape, 10, seeded(0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
    assert before[2] == random.getstate()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(7, 3),
        lambda: nn.Linear(7, 3, bias=False),
        lambda: nn.Conv1d(2, 3, 3),
        lambda: nn.Conv2d(4, 6, (3, 2), groups=2),
        lambda: nn.Conv3d(2, 2, 2),
        lambda: nn.Embedding(9, 4),
        lambda: nn.Embedding(9, 4, padding_idx=2),
        lambda: nn.LSTM(3, 5, num_layers=2),
        lambda: nn.GRU(3, 5),
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(4)),
        lambda: nn.Sequential(nn.Flatten(), *perceptron((64, 20, 10))),
        lambda: same_cnn((1, 8, 8), 32, 10),
        lambda: resnet18(3, 10, 2, nn.AdaptiveAvgPool2d(1)),
    ],
)
def test_identity_weights_are_the_ones_pytorch_would_draw(make: Callable[..., Any]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        expected = make().state_dict()
    ours = build_initialised(make, seeded(11)).state_dict()
    assert list(ours) == list(expected)
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_golden_default_bounds_and_spreads() -> None:
    linear: Any = build_initialised(lambda: nn.Linear(400, 300), seeded(0))
    lstm: Any = build_initialised(lambda: nn.LSTM(64, 100), seeded(0))
    for values, bound in ((linear.weight, 0.05), (linear.bias, 0.05), (lstm.weight_ih_l0, 0.1), (lstm.bias_hh_l0, 0.1)):
        assert 0.97 * bound < values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    table: Any = build_initialised(lambda: nn.Embedding(300, 100), seeded(0)).weight
    assert table.mean().item() == pytest.approx(0.0, abs=0.02)
    assert table.std().item() == pytest.approx(1.0, rel=0.02)


def test_golden_vgg_convolutions_are_spread_by_their_outputs() -> None:
    module: Any = models.VGG11().build(COLOUR, 10, seeded(0))
    convolutions = [layer for layer in module if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [64, 128, 256, 256, 512, 512, 512, 512]
    for layer in convolutions:
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * layer.out_channels)), rel=0.05)
        assert (layer.bias == 0).all()  # type: ignore[union-attr]
    hidden = next(layer for layer in module if isinstance(layer, nn.Linear))
    assert hidden.weight.abs().max().item() == pytest.approx(1 / math.sqrt(512), rel=1e-3)


def test_golden_softmax_starts_at_zero_unless_told_otherwise() -> None:
    zero: Any = models.Softmax().build((4,), 3, seeded(0))
    assert all((p == 0).all() for p in zero.parameters())
    assert all((p != 0).any() for p in models.Softmax(zero_init=False).build((4,), 3, seeded(0)).parameters())
    assert [name for name, _ in models.Softmax(bias=False).build((4,), 3, seeded(0)).named_parameters()] == ["1.weight"]


def test_golden_mlp_of_one_hidden_unit_by_hand() -> None:
    module: Any = models.MLP(hidden=(1,)).build((2,), 2, seeded(0))
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([[1.0, -2.0]]))
        module[1].bias.fill_(0.5)
        module[3].weight.copy_(torch.tensor([[2.0], [-1.0]]))
        module[3].bias.copy_(torch.tensor([0.0, 1.0]))
    out = module(torch.tensor([[3.0, 1.0], [0.0, 1.0]]))  # hidden: 3 − 2 + ½ = 1.5, and max(0, −1.5) = 0
    assert out.tolist() == [[3.0, -0.5], [0.0, 1.0]]


def test_identity_mlp_without_hidden_layers_is_softmax() -> None:
    mlp: Any = models.MLP(hidden=()).build(GREY, 10, seeded(5))
    softmax: Any = models.Softmax(zero_init=False).build(GREY, 10, seeded(5))
    x = torch.randn(4, *GREY, generator=seeded(0))
    assert torch.equal(mlp(x), softmax(x))


def test_identity_leaf_cnn_is_cnn_with_2048_units() -> None:
    leaf = models.LeafCNN().build((1, 8, 8), 62, seeded(5)).state_dict()
    cnn = models.CNN(dense=2048).build((1, 8, 8), 62, seeded(5)).state_dict()
    assert list(leaf) == list(cnn)
    assert all(torch.equal(leaf[name], cnn[name]) for name in leaf)


def test_identity_fedexp_cnn_has_the_layers_of_lenet5() -> None:
    kinds = [
        [type(layer) for layer in rule.build(COLOUR, 10, seeded(0)).children()]
        for rule in (models.FedExpCNN(), models.LeNet5())
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(("rule", "shape"), [(models.EmnistCNN(), GREY), (models.VGG11(), COLOUR)], ids=name_of)
def test_identity_dropout_is_for_training_only(rule: VGG11 | EmnistCNN, shape: tuple[int, int, int]) -> None:
    module: Any = rule.build(shape, 10, seeded(0)).eval()
    plain = nn.Sequential(*[layer for layer in module if not isinstance(layer, nn.Dropout)])
    x = samples(rule, shape)
    assert torch.equal(module(x), plain(x))


@pytest.mark.parametrize("layers", [1, 2])
def test_identity_char_lstm_reads_the_last_state_of_the_last_layer(layers: int) -> None:
    module: Any = models.CharLSTM(embedding=3, hidden=5, layers=layers).build((6,), 4, seeded(0))
    text = torch.randint(4, (2, 6), generator=seeded(1))
    _, (state, _) = module.lstm(module.embedding(text))
    assert module.lstm.num_layers == len(state) == layers
    torch.testing.assert_close(module(text), module.head(state[-1]))


def test_golden_char_lstm_vocabulary_may_differ_from_outputs() -> None:
    module: Any = models.CharLSTM(vocabulary=30, hidden=4).build((6,), 2, seeded(0))
    assert module.embedding.num_embeddings == 30
    assert module(torch.full((1, 6), 29)).shape == (1, 2)


def test_identity_resnet_of_one_group_is_layer_normalised() -> None:
    module: Any = models.ResNet18(groups=1).build((3, 8, 8), 10, seeded(0)).eval()
    x = torch.randn(2, 3, 8, 8, generator=seeded(1))
    convolved = module[0](x)
    torch.testing.assert_close(module[:2](x), nn.functional.layer_norm(convolved, convolved.shape[1:]))
    assert {layer.num_groups for layer in module.modules() if isinstance(layer, nn.GroupNorm)} == {1}


def test_golden_resnet_blocks_add_their_shortcut() -> None:
    module: Any = models.ResNet18().build((3, 8, 8), 10, seeded(0))
    x = torch.randn(2, 64, 8, 8, generator=seeded(1))
    plain, halving = module[3], module[5]
    torch.testing.assert_close(plain(x), nn.functional.relu(plain.main(x) + x))
    torch.testing.assert_close(halving(x), nn.functional.relu(halving.main(x) + halving.shortcut(x)))
    assert halving(x).shape == (2, 128, 4, 4)


def test_golden_resnet_pools_the_whole_map_or_its_corner() -> None:
    whole: Any = models.ResNet18().build((3, 32, 32), 10, seeded(0)).eval()
    corner: Any = models.ResNet18(pooling="corner").build((3, 32, 32), 10, seeded(0)).eval()
    x = torch.randn(1, 3, 32, 32, generator=seeded(1))
    last_map = whole[:-3](x)
    assert last_map.shape == (1, 512, 4, 4)
    torch.testing.assert_close(whole(x), whole[-1](last_map.mean((2, 3))))
    torch.testing.assert_close(corner(x), corner[-1](last_map[:, :, :3, :3].mean((2, 3))))
    assert not torch.allclose(whole(x), corner(x))


def test_golden_point_answers_every_sample_and_feels_every_target() -> None:
    module: Any = models.Point(dim=2, start=1.0, dtype="float64").build((5,), 9, seeded(0))
    out = module(torch.zeros(3, 5))
    assert out.tolist() == [[1.0, 1.0]] * 3
    assert out.dtype == torch.float64
    torch.autograd.backward(quadratic(out, torch.tensor([[2.0, 4.0, 6.0]] * 3, dtype=torch.float64)).sum())
    assert module.point.grad.tolist() == [-6.0, -12.0]  # 3·(h·x − e) with h = 2, e = (4, 6)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3), (1, 1, 2, 3)])
def test_property_flat_models_take_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.arange(12.0).reshape(2, *shape)
    for rule in (models.Softmax(zero_init=False), models.MLP(hidden=(4,))):
        flat = rule.build((6,), 3, seeded(2))(x.reshape(2, 6))
        assert torch.equal(rule.build(shape, 3, seeded(2))(x), flat)


@pytest.mark.parametrize(("rule", "least"), LEAST, ids=name_of)
def test_error_images_smaller_than_the_least_size(rule: Any, least: int) -> None:
    for shape in ((2, least, least), (2, least, least + 3)):
        module = rule.build(shape, 3, seeded(0)).eval()
        assert module(torch.zeros(1, *shape)).shape == (1, 3)
    for shape in ((2, least, least - 1), (2, least - 1, least)):
        message = rf"{type(rule).__name__} needs images of at least {least}x{least}; got {shape[1]}x{shape[2]}\. "
        with pytest.raises(ConfigError, match=message + 'Use larger images, or set model.use = "mlp"'):
            rule.build(shape, 3, seeded(0))


@pytest.mark.parametrize("shape", [(64,), (8, 8), (0, 8, 8), (1, 1, 8, 8)])
@pytest.mark.parametrize("rule", [models.ResNet18(), *(rule for rule, _ in LEAST)], ids=name_of)
def test_error_inputs_that_are_not_images(rule: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=rf"{type(rule).__name__} needs images of shape \(channels, height, width\); got"
    ):
        rule.build(shape, 10, seeded(0))


@pytest.mark.parametrize("shape", [GREY, (0,), ()])
def test_error_char_lstm_on_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"CharLSTM needs a sequence of characters per sample; got example shape \("):
        models.CharLSTM().build(shape, 10, seeded(0))


@pytest.mark.parametrize("rule", [models.Softmax(), models.MLP()], ids=name_of)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_error_samples_without_numbers(rule: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"needs samples with an axis of at least one number; got example shape \("):
        rule.build(shape, 10, seeded(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.MLP(hidden=(64, 0)), r"MLP needs hidden >= 1; got 0\. Change model\.hidden\."),
        (lambda: models.CNN(dense=0), r"CNN needs dense >= 1; got 0\. Change model\.dense\."),
        (lambda: models.LeNet5(dense=(0,)), r"LeNet5 needs dense >= 1; got 0\. Change model\.dense\."),
        (lambda: models.CharLSTM(layers=0), r"CharLSTM needs layers >= 1; got 0\. Change model\.layers\."),
        (lambda: models.CharLSTM(vocabulary=0), r"CharLSTM needs vocabulary >= 1; got 0\."),
        (lambda: models.Point(dim=0), r"Point needs dim >= 1; got 0\. Change model\.dim\."),
        (lambda: models.ResNet18(groups=3), r"ResNet18 needs groups to be one of 1, 2, 4, .*; got 3\. Change model"),  # type: ignore[arg-type]
        (lambda: models.ResNet18(groups=0), r"ResNet18 needs groups to be one of 1, 2, 4, .*; got 0\."),  # type: ignore[arg-type]
    ],
)
def test_error_settings_name_themselves_and_the_fix(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("side", [16, 41])
def test_error_corner_pooling_needs_a_last_map_of_three_to_five(side: int) -> None:
    rule = models.ResNet18(pooling="corner")
    with pytest.raises(
        ConfigError, match=rf"needs images of 17 to 40 pixels a side; got 32x{side}\. Set model\.pooling"
    ):
        rule.build((3, 32, side), 10, seeded(0))
    fits = 17 if side == 16 else 40
    assert rule.build((3, fits, fits), 10, seeded(0)).eval()(torch.zeros(1, 3, fits, fits)).shape == (1, 10)


def test_error_layers_with_weights_that_cannot_be_drawn() -> None:
    with pytest.raises(
        ConfigError, match=r"initialise needs layers of a known type .*; got Bilinear, which has weights"
    ):
        initialise(nn.Sequential(nn.Linear(2, 2), nn.Bilinear(2, 2, 2)), seeded(0))
