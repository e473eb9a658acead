"""Self-distillation: the narrow part of a step learns from the predictions of the client's own width."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.support.width_runs import TASKS, mlp, slices_of, width_run
from turnout.engine import Sequential
from turnout.engine.vectorised.engine import Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Fleet
from turnout.local import SGD
from turnout.losses import Distilled, cross_entropy
from turnout.width import Nested, Ordered


class _Half(Ordered):
    """Ordered widths whose every step draws one half."""

    def step_rates(self, clients: Any, rates: Any, steps: int, view: Any) -> Any:
        return np.full((len(clients), steps), 0.5)


class _Only:
    """Client 2 alone is available."""

    def up(self, view: Any) -> Any:
        return np.array([2])


def test_identity_one_rate_is_the_run_without_widths() -> None:
    plain, _ = width_run(mlp(), None)
    distilled, _ = width_run(mlp(), Ordered(rates=(1.0,), distil=True))
    assert torch.equal(plain.model, distilled.model)


def test_identity_a_part_that_is_the_whole_learns_nothing_from_itself() -> None:
    """With two rates that mean the same units, the second term has no gradient."""
    nested, _ = width_run(mlp(), Nested(rates=(0.5,)))
    distilled, _ = width_run(mlp(), Ordered(rates=(0.5, 0.49), distil=True))
    torch.testing.assert_close(nested.model, distilled.model, rtol=0, atol=1e-14)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(block=2)], ids=["sequential", "vectorised"])
def test_golden_one_step_adds_the_gradients_of_both_terms(engine: Any) -> None:
    task = mlp(hidden=(8,))
    final, records = width_run(
        task,
        _Half(rates=(1.0,), distil=True),
        rounds=1,
        local=SGD(lr=0.1, steps=1, weight_decay=0.2),
        fleet=Fleet(availability=_Only()),
        engine=engine,
    )
    at = {name: p.detach().clone().requires_grad_() for name, p in task.module.named_parameters()}
    slab = task.federation.train.fetch(np.array([2]))
    mine = slice(int(slab.starts[0]), int(slab.starts[0] + slab.sizes[0]))
    x, y = slab.x[mine], slab.y[mine]
    wide = torch.relu(x @ at["1.weight"].T + at["1.bias"]) @ at["3.weight"].T + at["3.bias"]
    narrow = torch.relu(x @ at["1.weight"][:4].T + at["1.bias"][:4]) @ at["3.weight"][:, :4].T + at["3.bias"]
    soft = F.softmax(wide, 1).detach()
    loss = F.cross_entropy(wide, y) + F.cross_entropy(narrow, soft)
    gradients = torch.autograd.grad(loss, list(at.values()))
    after = task.layout.views(final.model)
    for (name, before), gradient in zip(at.items(), gradients, strict=True):
        torch.testing.assert_close(after[name], (before - 0.1 * (gradient + 0.2 * before)).detach())
    assert records[-1].losses == pytest.approx([float(loss.detach())])


@pytest.mark.parametrize("name", TASKS)
def test_engine_both_engines_agree_on_distillation(name: str) -> None:
    local, rule = SGD(lr=0.05, steps=3, batch_size=4, prox_strength=0.1), Ordered(rates=(1.0, 0.5), distil=True)
    one, records = width_run(TASKS[name](), rule, rounds=2, local=local, engine=Sequential())
    other, others = width_run(TASKS[name](), rule, rounds=2, local=local, engine=Vectorised(block=2))
    torch.testing.assert_close(one.model, other.model)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_identity_the_part_computes_what_its_slice_computes(name: str) -> None:
    slices = slices_of(TASKS[name]())
    whole, half = slices.sizes, tuple(-(-size // 2) for size in slices.sizes)
    both = slices.cut(whole, distil=half).eval()
    with torch.no_grad():
        wide, narrow = both(slices.sample).chunk(2, 1)
        torch.testing.assert_close(wide, slices.cut(whole).eval()(slices.sample))
        torch.testing.assert_close(narrow, slices.cut(half).eval()(slices.sample))


def test_golden_a_step_costs_the_work_of_both_widths() -> None:
    local, fleet = SGD(lr=0.1, steps=2, batch_size=4), Fleet(availability=_Only())
    _, records = width_run(mlp(), _Half(rates=(1.0,), distil=True), rounds=1, local=local, fleet=fleet)
    assert records[-1].costs.gradient_evaluations == round(8 * (1 + 41 / 106))  # 5 → 8 → 6 → 3, and half of it


class _OwnThenHalf(Ordered):
    """Ordered widths that draw the client's own rate in the first step and one half in the second."""

    def step_rates(self, clients: Any, rates: Any, steps: int, view: Any) -> Any:
        return np.array([[1.0, 0.5]] * len(clients))


def test_golden_a_step_that_draws_the_clients_own_rate_costs_one_step() -> None:
    local, fleet = SGD(lr=0.1, steps=2, batch_size=4), Fleet(availability=_Only())
    _, records = width_run(mlp(), _OwnThenHalf(rates=(1.0,), distil=True), rounds=1, local=local, fleet=fleet)
    assert records[-1].costs.gradient_evaluations == round(4 + 4 * (1 + 41 / 106))


def test_golden_the_loss_is_the_sum_of_both_terms() -> None:
    output, target = torch.tensor([[1.0, 2.0, 0.5, -1.0]]), torch.tensor([1])
    p = 1 / (1 + np.exp(1.0))  # softmax of (1, 2)
    log_q = np.log(1 / (1 + np.exp(np.array([-1.5, 1.5]))))  # log softmax of (0.5, −1)
    expected = -np.log(1 - p) - (p * log_q[0] + (1 - p) * log_q[1])
    assert float(Distilled(cross_entropy)(output, target)) == pytest.approx(expected)


def test_error_masked_labels_do_not_go_with_distillation() -> None:
    with pytest.raises(ConfigError, match=r"Ordered needs distil = false where labels are masked"):
        Ordered(rates=(1.0,), distil=True, mask_labels=True)
