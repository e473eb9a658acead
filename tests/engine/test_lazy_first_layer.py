"""A first layer trained without its weights has the weights it would have had."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine_requests import answered, offset_of, request
from tests.support.optional import present
from tests.support.tasks import wide_task
from turnout.engine import Sequential, Vectorised
from turnout.engine.vectorised.lazy_first_layer import FirstLayer, mixes, pays
from turnout.engine.vectorised.scratch import Scratch
from turnout.local import SGD
from turnout.requests import Fit
from turnout.row_table import Overlay, RowTable, TableExcerpt

LOCALS = {
    "plain": SGD(lr=0.1, batch_size=4, steps=5),
    "rolling": SGD(lr=0.1, batch_size=4, steps=5, momentum=0.9, weight_decay=0.1, prox_strength=0.5, lr_decay=0.8),
    "controlled": SGD(lr=0.1, batch_size=4, steps=5, control="average"),
    "controlled-rolling": SGD(lr=0.1, batch_size=4, steps=5, control="average", momentum=0.5, prox_strength=0.2),
    "controlled-nesterov": SGD(
        lr=0.1, batch_size=4, steps=5, control="average", momentum=0.5, nesterov=True, weight_decay=0.1,
        prox_strength=0.2, lr_decay=0.8,
    ),
}  # fmt: skip


def test_golden_two_steps_of_everything_by_hand() -> None:
    settings = {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.25, "prox_strength": 1.0}
    found = mixes({name: np.full(3, value) for name, value in settings.items()}, 2, True)
    assert found.shape == (3, 1, 5)  # all rows are alike, so they share one
    assert found[0, 0].tolist() == [1, 0, 0, 0, 0]
    # v = 0.25·W₀ − k + g₀;  W = 0.5·W₀ + 0.5·W₀ − 0.5·v
    assert found[1, 0].tolist() == [0.875, 0.5, 0, -0.5, 0]
    # v = 0.5·v + g₁ − k + 0.25·W = 0.34375·W₀ − 1.375·k + 0.375·g₀ + g₁;  W = 0.5·W + 0.5·W₀ − 0.5·v
    assert found[2, 0].tolist() == [0.765625, 0.9375, 0, -0.4375, -0.5]


def test_golden_two_steps_of_nesterov_momentum_by_hand() -> None:
    settings = {"lr": 0.5, "momentum": 0.5, "nesterov": 1.0, "weight_decay": 0.25}
    found = mixes({name: np.full(3, value) for name, value in settings.items()}, 2, True)
    # v = g = 0.25·W₀ − k + g₀;  W = W₀ − 0.5·(g + 0.5·v)
    assert found[1, 0].tolist() == [0.8125, 0.75, 0, -0.75, 0]
    # g = 0.25·W − k + g₁ = 0.203125·W₀ − 0.8125·k − 0.1875·g₀ + g₁;  v = 0.5·v + g;  W = W − 0.5·(g + 0.5·v)
    assert found[2, 0].tolist() == [0.62890625, 1.484375, 0, -0.734375, -0.75]


@given(
    st.floats(0.01, 1.0),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0.5, 1.0),
    st.booleans(),
)
def test_property_the_mix_is_what_the_recursion_gives(
    lr: float, momentum: float, decay: float, strength: float, lr_decay: float, has_anchor: bool
) -> None:
    base, control, anchor, *grads = np.random.default_rng(0).normal(size=7)
    names = ("lr", "momentum", "weight_decay", "prox_strength", "lr_decay")
    given_settings = dict(zip(names, (lr, momentum, decay, strength, lr_decay), strict=True))
    found = mixes({name: np.array([value, value / 2]) for name, value in given_settings.items()}, 4, True, has_anchor)
    for row, part in enumerate((1.0, 0.5)):
        rate, rho, lam, mu, fade = (part * value for value in (lr, momentum, decay, strength, lr_decay))
        x, v = base, 0.0
        for step, grad in enumerate(grads):
            now = rate * fade**step
            v = rho * v + grad + lam * x - control
            x = x - now * mu * (x - (anchor if has_anchor else base)) - now * v
            mixed = found[step + 1, row if found.shape[1] > 1 else 0] @ [base, control, anchor, *grads]
            assert mixed == pytest.approx(x)


@pytest.fixture(params=[1, 4, 100])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows' controls are formed at once."""
    first = wide_task().layout.slots[0]
    monkeypatch.setattr(
        "turnout.engine.vectorised.gradient_offsets.PIECE_BYTES", request.param * (first.stop - first.start) * 8
    )
    result: int = request.param
    return result


@pytest.mark.parametrize("name", LOCALS)
@pytest.mark.parametrize("block", [1, 4, 100])
def test_engine_it_is_what_writing_at_every_step_gives(
    name: str, block: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, local = wide_task(), LOCALS[name]

    def asked() -> Fit:
        more = {"offset": offset_of(task, 0)} if name.startswith("controlled") else {}  # each has memory of its own
        plain = request(task, None, local, **more)
        rates = np.linspace(0.05, 0.1, len(plain.clients))  # each row its own
        return replace(plain, steps=np.array([5, 5, 4, 5, 3, 5]), settings={**plain.settings, "lr": rates})

    made = []
    real = FirstLayer.change
    monkeypatch.setattr(FirstLayer, "change", lambda self, *a: made.append(self) or real(self, *a))  # type: ignore[func-returns-value]
    mine = answered(Vectorised("cpu", block=block), task, asked())
    assert made, "this block was to be deferred"
    monkeypatch.setattr("turnout.engine.vectorised.stacked_training.pays", lambda *_: False)
    written = answered(Vectorised("cpu", block=block), task, asked())
    alone = answered(Sequential(), task, asked())
    for other in (written, alone):
        assert torch.allclose(mine.delta, other.delta, rtol=0, atol=1e-12)
        assert np.allclose(mine.loss, other.loss, rtol=0, atol=1e-12)
        if local.control != "none":
            assert torch.allclose(mine.next_rows, other.next_rows, rtol=0, atol=1e-12)


@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("decay", [0.0, 0.2])  # with decay the control is not all that is left over
def test_engine_sums_of_changes_come_from_the_next_controls_alone(
    block: int, decay: float, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, shares = wide_task(), np.random.default_rng(3).random(6)
    local = SGD(lr=0.1, batch_size=4, steps=5, control="average", momentum=0.5, weight_decay=decay)

    def asked(seed: int) -> Fit:
        plain = request(task, shares, local, offset=offset_of(task, seed))  # each has memory of its own
        return replace(plain, steps=np.array([5, 5, 4, 5, 3, 5]))

    scaled = []
    real = FirstLayer.change
    monkeypatch.setattr(FirstLayer, "change", lambda self, *a: scaled.append(len(a) == 2) or real(self, *a))  # type: ignore[func-returns-value]
    several = Vectorised("cpu", block=block).answer([(task, asked(0)), (task, asked(1))])
    single = answered(Vectorised("cpu", block=block), task, asked(0))
    assert scaled, "this block was to be deferred"
    assert all(scaled), "no change was to be written"
    for seed, mine in ((0, single), *enumerate(several)):
        alone = answered(Sequential(), task, asked(seed))
        for what in ("reduced", "next_rows", "next_sum"):
            assert torch.allclose(getattr(mine, what), getattr(alone, what), rtol=0, atol=1e-11), what


STARTS: dict[str, tuple[dict[str, Any], SGD]] = {
    "own starts, pulled to the model": ({"wants_ends": True}, SGD(lr=0.1, batch_size=4, steps=5, prox_strength=0.5)),
    "own starts, no pull": ({"wants_ends": True}, SGD(lr=0.1, batch_size=4, steps=5, momentum=0.5)),
    "own starts, everything": ({"wants_ends": True}, LOCALS["rolling"]),
    "own starts, pulled to them": (
        {"own_models": True, "wants_ends": True},
        SGD(lr=0.1, batch_size=4, steps=5, prox_strength=0.5),
    ),
    "changes and ends": ({"coefficients": None, "wants_ends": True}, LOCALS["rolling"]),
    "the first layer is private": ({"coefficients": None, "wants_ends": True, "private": True}, LOCALS["plain"]),
    "the last layer is frozen": ({"frozen": True, "wants_ends": True}, LOCALS["plain"]),
    "sums and ends": ({"coefficients": np.linspace(0.1, 0.3, 6), "wants_ends": True}, LOCALS["plain"]),
}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("kind", ["table", "overlay"])
def test_engine_starts_and_ends_are_those_of_writing_at_every_step(
    name: str, block: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, (what, local) = wide_task(), STARTS[name]
    names = [slot.name for slot in task.layout.slots]
    model = torch.linspace(-0.5, 0.5, task.layout.size, dtype=torch.float64)
    table = RowTable(6, model, first=model)
    rows = 0.3 * torch.randn(3, task.layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    table.put(np.arange(0, 6, 2), rows)
    own = names[len(names) // 2 :]
    columns = task.layout.columns(own)
    part = RowTable(6, model[columns], first=model[columns])
    part.put(np.arange(0, 6, 2), rows[:, columns])
    chosen = {"wants_ends": tuple(names), "private": (names[0],), "frozen": (names[-1],)}
    more: dict[str, Any] = {each: chosen.get(each, value) for each, value in what.items()}

    def asked() -> Fit:
        starts = table if kind == "table" else Overlay(model, columns, part)
        given = {"coefficients": np.zeros(6), "starts": starts, **more}
        return replace(request(task, None, local), model=model, steps=np.array([5, 5, 4, 5, 3, 5]), **given)

    made = []
    real = FirstLayer.__init__
    monkeypatch.setattr(FirstLayer, "__init__", lambda self, *a: made.append(self) or real(self, *a))  # type: ignore[func-returns-value]
    mine = answered(Vectorised("cpu", block=block), task, asked())
    assert made, "this block was to be deferred"
    monkeypatch.setattr("turnout.engine.vectorised.stacked_training.pays", lambda *_: False)
    for other in (answered(Vectorised("cpu", block=block), task, asked()), answered(Sequential(), task, asked())):
        assert mine.ends is not None
        assert torch.allclose(mine.ends, other.ends, rtol=1e-11, atol=1e-12)
        assert np.allclose(mine.loss, other.loss, rtol=1e-11, atol=1e-12)
        if asked().coefficients is None:
            assert torch.allclose(mine.delta, other.delta, rtol=1e-11, atol=1e-12)
        else:
            assert torch.allclose(mine.reduced, other.reduced, rtol=1e-11, atol=1e-12)
            assert mine.reduced.any() == (name == "sums and ends")


def test_engine_a_frozen_first_layer_does_not_move() -> None:
    task = wide_task()
    first, *others = (slot.name for slot in task.layout.slots)
    asked = replace(request(task, None, LOCALS["plain"]), frozen=(first,), wants_ends=(first, *others))
    for engine in (Vectorised("cpu", block=4), Sequential()):
        moved = present(answered(engine, task, asked).delta).abs().amax(0)
        assert [bool(moved[slot.start : slot.stop].any()) for slot in task.layout.slots] == [
            False,
            *[True] * len(others),
        ]


def test_golden_an_overlay_is_read_in_runs_of_columns() -> None:
    model, own = torch.arange(6.0), TableExcerpt(np.array([3, 8]), torch.tensor([[10.0, 11.0], [20.0, 21.0]]))
    overlay, clients = Overlay(model, torch.tensor([2, 4]), own), np.array([3, 8])
    runs = [slice(0, 2), slice(2, 3), slice(2, 5), slice(4, 6)]
    whole = overlay.take(clients)
    assert whole.tolist() == [[0, 1, 10, 3, 11, 5], [0, 1, 20, 3, 21, 5]]
    shared, *parts = overlay.parts(clients, runs)
    assert shared.tolist() == [[0, 1]]  # one row, which all have
    for run, part in zip(runs[1:], parts, strict=True):
        assert torch.equal(part, whole[:, run])


@pytest.mark.parametrize("block", [1, 100])
def test_engine_ends_that_are_not_finite_are_found_where_nobody_looks_at_changes(block: int) -> None:
    task = wide_task()
    names = tuple(slot.name for slot in task.layout.slots)
    model = torch.linspace(-0.5, 0.5, task.layout.size, dtype=torch.float64)
    table = RowTable(6, model, first=model)
    table.put(np.array([2]), torch.full((1, task.layout.size), torch.inf, dtype=torch.float64))
    plain = request(task, np.zeros(6), LOCALS["plain"])
    fit = replace(plain, model=model, starts=table, wants_ends=names)
    for engine in (Vectorised("cpu", block=block), Sequential()):
        assert answered(engine, task, fit).finite.tolist() == [True, True, False, True, True, True]


def test_engine_what_was_left_in_memory_does_not_get_in() -> None:
    x, base = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(1, 8, 7, dtype=torch.float64)
    scratch = Scratch()
    scratch.take("first errors", (2, 6, 7), x).fill_(torch.nan)
    steps = np.array([3, 1])
    layer = FirstLayer(x, base, None, None, mixes({"lr": np.full(2, 0.1)}, 3, False), steps, scratch)
    for active in (2, 1, 1):
        layer.outputs(active, None)
        layer.take(torch.ones(active, 2, 7, dtype=torch.float64))
    expected = 0.1 * torch.stack([x[0].sum(0), x[1, :2].sum(0)])[:, :, None].expand(2, 8, 7)
    assert torch.allclose(layer.change(torch.empty(2, 8, 7, dtype=torch.float64)), expected)


def test_golden_it_pays_while_visits_are_few() -> None:
    assert pays(784, 200, 100)
    assert not pays(784, 10, 100)  # a softmax: the products of visits would be larger than the layer
    assert not pays(784, 200, 1000)
