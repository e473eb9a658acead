"""Families of modules on a stack: networks built of usual parts give what the reference and plain PyTorch give."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.engine_requests import LOCAL, answered, by_hand, request
from tests.support.tasks import seeded, train_of
from turnout import losses
from turnout.data.federation import Federation, from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.dropout import LEVELS, Dropout, KeyedDropout, keep
from turnout.engine.vectorised.mlp import Dense
from turnout.errors import ConfigError
from turnout.local import SGD, Adam
from turnout.protocols import Local
from turnout.requests import Trained

SIZES = (7, 12, 5, 9, 16)  # of clients: batches of four leave one sample over, and are padded
WIDTH = 16


class Part(nn.Module):
    """One part of a network of vectors."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(WIDTH, WIDTH)
        self.norm: Any = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}.get(kind, nn.Identity)(WIDTH)
        self.group, self.dropout = nn.GroupNorm(4, WIDTH), nn.Dropout(0.3)
        self.halve = nn.Linear(2 * WIDTH, WIDTH)
        self.scale, self.matrix = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        kinds: dict[str, Callable[[], Tensor]] = {
            "layer": lambda: torch.relu(self.norm(h)),
            "batch": lambda: torch.relu(self.norm(h)),
            "group": lambda: self.group(h),
            "dropout": lambda: self.dropout(torch.tanh(h)),
            "F.dropout": lambda: F.dropout(h, 0.4, self.training),
            "residual": lambda: x + F.gelu(h),
            "concatenate": lambda: self.halve(torch.cat([x, F.silu(h)], dim=1)),
            "by hand": lambda: (h @ self.matrix) * self.scale + F.linear(x, self.matrix),
            "reshape": lambda: h.view(h.size(0), 4, 4).transpose(1, 2).softmax(-1).flatten(1),
        }
        return kinds[self.kind]()


PARTS = ("layer", "batch", "group", "dropout", "F.dropout", "residual", "concatenate", "by hand", "reshape")
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)


def vectors() -> Federation:
    rng = np.random.default_rng(1)
    pairs = [(torch.tensor(rng.normal(size=(n, WIDTH))), torch.tensor(rng.integers(0, 3, n))) for n in SIZES]
    return from_clients(pairs, num_classes=3)


def texts() -> Federation:
    rng = np.random.default_rng(1)
    pairs = [(torch.tensor(rng.integers(0, 11, (n, 6))), torch.tensor(rng.integers(0, 3, n))) for n in SIZES]
    return from_clients(pairs, num_classes=3)


def pictures() -> Federation:
    rng = np.random.default_rng(1)
    pairs = [(torch.tensor(rng.normal(size=(n, 2, 8, 8))), torch.tensor(rng.integers(0, 3, n))) for n in SIZES]
    return from_clients(pairs, num_classes=3)


def task_of(module: nn.Module, federation: Federation) -> Task:
    return Task(federation=federation, module=seeded(module), loss=losses.cross_entropy)


def trained(engine: Any, task: Task, local: Local, **more: Any) -> Trained:
    buffers = task.layout.flatten_buffers(task.module) if task.layout.buffers else None
    asked = replace(request(task, None, local, **more), buffers=buffers)  # type: ignore[arg-type]
    answer: Trained = answered(engine, task, asked)
    return answer


def check(task: Task, local: Local, kernel: str | None = None, **more: Any) -> None:
    """Hold stacks of all sizes to the reference, and to the kernel that is meant for the module."""
    reference = trained(Sequential(), task, local, **more)
    for block in (2, 5):
        engine = Vectorised("cpu", block=block)
        mine = trained(engine, task, local, **more)
        assert mine.delta is not None
        assert reference.delta is not None
        assert torch.allclose(mine.delta, reference.delta, rtol=0, atol=1e-10)
        assert np.allclose(mine.loss, reference.loss, rtol=0, atol=1e-10)
        assert (mine.buffers is None) == (reference.buffers is None)
        if mine.buffers is not None and reference.buffers is not None:
            assert torch.allclose(mine.buffers, reference.buffers, rtol=0, atol=1e-10)
        if kernel is not None:
            assert [each.name for each in engine._prepare(task).kernels][-1] == kernel


LOCALS: tuple[Local, ...] = (
    SGD(lr=0.1, batch_size=5, steps=3),
    SGD(lr=0.1, batch_size=5, steps=(1, 4), momentum=0.9, weight_decay=0.1, prox_strength=0.2),
    SGD(lr=0.1, batch_size=5, steps=3, clip_norm=0.5),
    Adam(lr=0.05, batch_size=5, steps=3),
)


@given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=4), local=st.sampled_from(LOCALS))
@settings(max_examples=10)
def test_property_a_network_of_usual_parts_agrees_with_the_reference(parts: list[str], local: Local) -> None:
    task = task_of(nn.Sequential(*map(Part, parts), nn.Linear(WIDTH, 3)), vectors())
    check(replace_sizes(task) if "batch" in parts else task, local)


@pytest.mark.parametrize("parts", [[part] for part in PARTS if "dropout" not in part], ids=lambda parts: parts[0])
def test_engine_every_part_is_trained_as_plain_pytorch_trains_it(parts: list[str]) -> None:
    task = task_of(nn.Sequential(*map(Part, parts), nn.Linear(WIDTH, 3)), vectors())
    if "batch" in parts:
        task = replace_sizes(task)
    answer = trained(Vectorised("cpu", block=3), task, LOCAL)
    asked = request(task, None, LOCAL)
    assert answer.delta is not None
    for place in range(len(asked.clients)):
        assert torch.allclose(answer.delta[place], by_hand(task, asked, place), rtol=0, atol=1e-11)


def replace_sizes(task: Task) -> Task:
    """Return the task with clients of which none has one sample left over."""
    rng = np.random.default_rng(1)
    pairs = [(torch.tensor(rng.normal(size=(n, WIDTH))), torch.tensor(rng.integers(0, 3, n))) for n in (8, 15, 7, 12)]
    return Task(federation=from_clients(pairs, num_classes=3), module=task.module, loss=task.loss)


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("local", LOCALS[:2])
def test_engine_every_activation_is_run_by_hand(kind: type[nn.Module], local: Local) -> None:
    layers = [nn.Linear(WIDTH, 20), kind(), nn.Dropout(0.25), nn.Linear(20, 12, bias=False), kind(), nn.Linear(12, 3)]
    check(task_of(nn.Sequential(*layers), vectors()), local, "dense")
    wide = nn.Sequential(nn.Linear(WIDTH, 64), kind(), nn.Linear(64, 3))
    check(
        task_of(wide, vectors()), SGD(lr=0.1, batch_size=4, steps=2), "dense"
    )  # its first layer is written at the end


class ByFunction(nn.Module):
    """A plain network whose forward pass is written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(F.dropout(F.elu(self.first(x.flatten(1) / 2.0), 0.5), p=0.5, training=self.training))
        return out


def test_engine_a_forward_written_in_python_is_run_by_hand_too() -> None:
    check(task_of(ByFunction(), vectors()), LOCALS[0], "dense")


def test_engine_stacks_of_all_sizes_draw_the_same_masks() -> None:
    task = task_of(
        nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, 20), nn.ReLU(), nn.Dropout1d(0.3), nn.Linear(20, 3)), vectors()
    )
    check(task, SGD(lr=0.1, batch_size=5, steps=(1, 5)))
    one = trained(Sequential(), task, LOCALS[0])
    engine = Vectorised("cpu", stack=False, workers=2)
    assert one.delta is not None
    assert torch.allclose(trained(engine, task, LOCALS[0]).delta, one.delta, rtol=0, atol=1e-11)  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_property_masks_keep_the_share_they_should_and_do_not_repeat(p: float) -> None:
    keys = np.arange(40, dtype=np.uint64)
    kept = keep(keys, 3, 1, 5000, p)
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.size)
    assert np.array_equal(keep(keys[7:9], 3, 1, 5000, p), kept[7:9])  # a row's own, whoever is beside it
    assert np.array_equal(keep(keys, 3, 1, 33, p), kept[:, :33])  # padding comes after
    for other in (keep(keys, 4, 1, 5000, p), keep(keys, 3, 2, 5000, p), keep(keys + np.uint64(1), 3, 1, 5000, p)):
        assert abs((kept == other).mean() - (p**2 + (1 - p) ** 2)) < 0.01


def test_golden_what_is_kept_is_scaled_to_the_same_mean() -> None:
    ones = torch.ones(4, 50_000)
    for p in (0.0001, 0.3):
        mask = Dropout(p, True, 0).mask(np.zeros(1, dtype=np.uint64), 0, ones)
        assert set(mask.flatten().tolist()) == {0.0, float(mask.max())}
        assert float(mask.max()) == pytest.approx(1 / (1 - round(p * LEVELS) / LEVELS))
        assert abs(float(mask.mean()) - 1) < 0.02
    assert not Dropout(1.0, True, 0).mask(np.zeros(1, dtype=np.uint64), 0, ones).any()
    by_channel = Dropout(0.5, False, 0).mask(np.zeros(1, dtype=np.uint64), 0, torch.ones(3, 8, 2, 2))
    assert by_channel.shape == (3, 8, 1, 1)


def test_identity_layers_and_functions_draw_one_stream() -> None:
    x, layer = torch.ones(5, 40), nn.Dropout(0.5)
    with KeyedDropout() as masks:
        masks.begin(np.array([9], dtype=np.uint64), 2)
        first, second = layer(x), F.dropout(x, 0.5)
        masks.begin(np.array([9], dtype=np.uint64), 2)
        again = F.dropout(x, 0.5)
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
        assert torch.equal(F.dropout(x, 0.5), second)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


class Sequence(nn.Module):
    """An embedding, a layer over the sequence, and a head."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        self.kind, self.embedding = kind, nn.Embedding(11, 8, padding_idx=2 if kind == "mean" else None)
        self.layer: Any = nn.Identity()
        if kind in ("LSTM", "GRU", "RNN"):
            self.layer = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}[kind](8, 8, batch_first=True, **settings)
        self.place = nn.Parameter(torch.zeros(1, 6, 8))
        self.inner, self.outer, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        if self.kind in ("LSTM", "GRU", "RNN"):
            out, state = self.layer(h)
            last = state[0] if self.kind == "LSTM" else state
            h = out[:, -1] + last[-1] + (state[1][0] if self.kind == "LSTM" else 0.0)
        elif self.kind == "function":
            q, k, v = self.inner(self.norm(h + self.place)).view(h.size(0), 6, 6, 4).transpose(1, 2).chunk(3, dim=1)
            h = (h + self.outer(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))).mean(1)
        elif self.kind == "module":
            h = (h + self.attention(h, h, h, need_weights=False)[0]).mean(1)
        else:
            h = h.mean(1)
        logits: Tensor = self.head(h)
        return logits


SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "mean": lambda: Sequence("mean"),
    "LSTM": lambda: Sequence("LSTM", num_layers=2),
    "GRU": lambda: Sequence("GRU", num_layers=2),
    "GRU without bias": lambda: Sequence("GRU", bias=False),
    "RNN": lambda: Sequence("RNN"),
    "RNN with ReLU": lambda: Sequence("RNN", nonlinearity="relu"),
    "attention by function": lambda: Sequence("function"),
    "attention by module": lambda: Sequence("module"),
    "bag": lambda: nn.Sequential(nn.EmbeddingBag(11, 8), nn.Linear(8, 3)),
    "bag that sums": lambda: nn.Sequential(nn.EmbeddingBag(11, 8, mode="sum", padding_idx=3), nn.Linear(8, 3)),
    "bag with padding": lambda: nn.Sequential(nn.EmbeddingBag(11, 8, padding_idx=0), nn.Linear(8, 3)),
}


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("local", LOCALS, ids=["plain", "momentum", "clipped", "Adam"])
def test_engine_models_of_text_agree_with_the_reference(name: str, local: Local) -> None:
    check(task_of(SEQUENCES[name](), texts()), local, "lowered")


@pytest.mark.parametrize("name", SEQUENCES)
def test_engine_models_of_text_are_trained_as_plain_pytorch_trains_them(name: str) -> None:
    task = task_of(SEQUENCES[name](), texts())
    answer, asked = trained(Vectorised("cpu", block=3), task, LOCAL), request(task, None, LOCAL)
    assert answer.delta is not None
    for place in range(len(asked.clients)):
        assert torch.allclose(answer.delta[place], by_hand(task, asked, place), rtol=0, atol=1e-11)


def convolutions(norm: Any) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), norm(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.2),
        nn.Conv2d(4, 4, 3, stride=2), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d, lambda n: nn.GroupNorm(2, n), nn.Identity], ids=["batch", "group", "no"]
)
@pytest.mark.parametrize("local", LOCALS[:2])
def test_engine_convolutions_agree_with_the_reference(norm: Any, local: Local) -> None:
    check(task_of(convolutions(norm), pictures()), local, "lowered")


def test_engine_batch_normalisation_with_a_running_mean_of_all_batches() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8, momentum=None, affine=False), nn.Linear(8, 3))
    check(replace_sizes(task_of(module, vectors())), SGD(lr=0.1, batch_size=4, steps=(2, 5)), "lowered")


class Adapted(nn.Module):
    """Frozen layers with trained thin matrices beside them, and a frozen weight used by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Linear(WIDTH, WIDTH).requires_grad_(False) for _ in range(2))
        self.down, self.up = nn.Parameter(torch.zeros(WIDTH, 2)), nn.Linear(2, WIDTH, bias=False)
        self.fixed = nn.Parameter(torch.ones(WIDTH, WIDTH), requires_grad=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.one(x) + self.up(x @ self.down))
        out: Tensor = self.head(torch.tanh(F.linear(self.two(h), self.fixed) + h))
        return out


def frozen_chain() -> nn.Module:
    base = nn.Sequential(nn.Linear(WIDTH, 24), nn.Tanh(), nn.Linear(24, 20)).requires_grad_(False)
    return nn.Sequential(base, nn.Linear(20, 18), nn.ReLU(), nn.Linear(18, 3))


@pytest.mark.parametrize("make", [Adapted, frozen_chain])
@pytest.mark.parametrize("local", LOCALS[:2])
def test_engine_what_is_frozen_runs_once_for_all(make: Any, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(make(), vectors())
    check(task, local)
    engine = Vectorised("cpu", block=5)
    stored = engine._prepare(task).stored
    assert stored is not None
    before = trained(engine, task, local).delta
    (table,) = stored.tables.values()
    assert len(table) == sum(SIZES)
    trained(engine, task, local)
    assert next(iter(stored.tables.values())) is table  # once, not once a round
    monkeypatch.setattr("turnout.engine.vectorised.stored_inputs.MOST_BYTES", 0)
    assert torch.allclose(trained(engine, task, local).delta, before, rtol=0, atol=1e-11)  # type: ignore[arg-type]


class TimeFirst(nn.Module):
    """Samples in the second dimension: a stack that took them for the first would mix clients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.embedding = nn.Embedding(11, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(self.embedding(x).transpose(0, 1))
        out: Tensor = self.head(h.mean(0))
        return out


def test_engine_what_would_be_stacked_wrongly_is_found_out_and_runs_in_another_way() -> None:
    task = task_of(TimeFirst(), texts())
    check(task, LOCALS[0], "mapped")


class Shifting(nn.Module):
    """Changes its inputs in place, before a frozen layer: samples must stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.head = nn.Linear(WIDTH, 8).requires_grad_(False), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.fixed(x.sub_(1.0))))
        return out


@pytest.mark.filterwarnings("ignore:.*cannot be stacked")
def test_engine_samples_are_never_changed() -> None:
    task = task_of(Shifting(), vectors())
    before = train_of(task.federation).x.clone()
    check(task, LOCALS[0])
    assert torch.equal(train_of(task.federation).x, before)


def test_error_a_batch_of_one_names_the_client_whatever_the_kernel() -> None:
    task = task_of(nn.Sequential(nn.Linear(WIDTH, 40), nn.BatchNorm1d(40), nn.Linear(40, 3)), vectors())
    local = SGD(lr=0.1, batch_size=4, steps=(2, 4))  # clients of 5 and 9 have one sample left over
    for engine in (Sequential(), Vectorised("cpu", block=5)):
        with pytest.raises(ConfigError, match=r"needs batches it can be trained on; round 1 gave client \d one of 1"):
            trained(engine, task, local)


def test_engine_a_chain_of_known_layers_needs_no_autograd() -> None:
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 4), nn.GELU(), nn.Linear(4, 3)), vectors())
    kernel: Any = Vectorised("cpu")._prepare(task).kernels[-1]
    assert isinstance(kernel.program, Dense)
