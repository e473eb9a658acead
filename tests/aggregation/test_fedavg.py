"""FedAvg: identities T1 and T2, the three weightings, and a case worked by hand."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task, train_of
from turnout.aggregation import FedAvg
from turnout.aggregation.fedavg import participation_weights
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.errors import UpdateError
from turnout.local import SGD
from turnout.protocols import View
from turnout.rows import Facts
from turnout.selection import Uniform, Weighted

NEVER = Cadence(every=10**9)


def facts(weights: Any, multiplicity: list[int] | None = None, prob: ArrayLike | None = None) -> Facts:
    n = len(weights)
    ones = np.ones(n, dtype=np.int64)
    return Facts(
        clients=np.arange(n),
        weights=np.asarray(weights, dtype=float),
        num_examples=ones,
        asked_steps=ones,
        local_steps=ones,
        local_work=ones.astype(float),
        local_lr=np.full(n, 0.1),
        multiplicity=ones if multiplicity is None else np.asarray(multiplicity),
        inclusion_prob=None if prob is None else np.asarray(prob, dtype=float),
        num_clients=n,
    )


def test_identity_one_full_gradient_step_is_gradient_descent(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(6)
    lr = 0.3
    plan = Plan(local=SGD(lr=lr, steps=1, batches="full"), rounds=1, evaluate=NEVER)
    final, _ = run(task, plan, engine=any_engine())
    start = task.layout.flatten(task.module)
    x, y = train_of(task.federation).x, train_of(task.federation).y
    loss = task.loss(task.module(x), y).mean()  # Σ p_i F_i is the mean over all samples
    named = dict(task.module.named_parameters())
    grads = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    flat = torch.cat([(grads[s.name].t() if s.transposed else grads[s.name]).reshape(-1) for s in task.layout.slots])
    assert torch.allclose(final.model, start - lr * flat, rtol=0, atol=1e-12)


def test_identity_a_single_client_is_plain_local_sgd(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(1)
    plan = Plan(local=SGD(lr=0.1, steps=4, batches="full"), rounds=2, evaluate=NEVER)
    final, _ = run(task, plan, engine=any_engine())
    x, y = train_of(task.federation).of(0)
    module = task.layout.load(task.module, task.layout.flatten(task.module))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    before = task.layout.flatten(module)
    for _ in range(8):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(module(x), y).mean())
        optimiser.step()
    assert torch.allclose(final.model, task.layout.flatten(module), rtol=0, atol=1e-12)
    assert not torch.allclose(final.model, before)


def test_convergence_reaches_the_biased_fixed_point_of_quadratics(any_engine: Callable[[], Engine]) -> None:
    h, e, sizes = [1.0, 2.0, 0.5], [[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]], [2, 3, 5]
    steps, lr = (1, 3, 7), 0.2
    task = quadratic_task(h, e, sizes)
    p = np.array(sizes) / sum(sizes)

    class Unequal(SGD):  # every client its own number of steps
        def asked(self, clients: Ids, view: View) -> Ids:
            return np.asarray(steps)[clients]

    final, _ = run(
        task, Plan(local=Unequal(lr=lr, steps=1, batches="full"), rounds=60, evaluate=NEVER), engine=any_engine()
    )
    pull = p * (1 - (1 - lr * np.array(h)) ** np.array(steps))  # w_i
    minima = np.array(e) / np.array(h)[:, None]
    expected = (pull[:, None] * minima).sum(0) / pull.sum()
    assert np.allclose(final.model.numpy(), expected, atol=1e-8)
    optimum = (p[:, None] * np.array(e)).sum(0) / (p * h).sum()
    assert np.abs(expected - optimum).max() > 0.1  # and that is not the optimum asked for


def test_golden_two_clients_by_hand() -> None:
    # p = (¼, ¾), Δ = (4, 8): ratio 7; mean 6; ht with π = (½, ½): 2·7 = 14
    delta = np.array([4.0, 8.0])
    assert participation_weights(facts([0.25, 0.75]), "ratio") @ delta == pytest.approx(7)
    assert participation_weights(facts([0.25, 0.75]), "mean") @ delta == pytest.approx(6)
    assert participation_weights(facts([0.25, 0.75], prob=[0.5, 0.5]), "ht") @ delta == pytest.approx(14)
    # drawn twice counts twice: mean (4 + 4 + 8) / 3; ratio (½·4 + ¾·8) / (½ + ¾)
    twice = facts([0.25, 0.75], multiplicity=[2, 1])
    assert participation_weights(twice, "mean") @ delta == pytest.approx(16 / 3)
    assert participation_weights(twice, "ratio") @ delta == pytest.approx(8 / 1.25)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8))
def test_identity_full_participation_makes_ht_and_ratio_equal(raw: list[float]) -> None:
    p = np.array(raw) / sum(raw)
    everyone = facts(p, prob=np.ones(len(p)))
    assert np.allclose(
        participation_weights(everyone, "ht"), participation_weights(everyone, "ratio"), rtol=0, atol=1e-12
    )
    equal = facts(np.full(len(p), 1 / len(p)), prob=np.ones(len(p)))
    assert np.allclose(participation_weights(equal, "mean"), participation_weights(equal, "ht"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_property_ht_is_unbiased_over_all_subsets(size: int) -> None:
    p, delta = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, -2.0, 3.0, 5.0])
    means = []
    for subset in itertools.combinations(range(4), size):
        s = list(subset)
        means.append(participation_weights(facts(p[s], prob=np.full(size, size / 4)), "ht") @ delta[s])
    assert np.mean(means) == pytest.approx(p @ delta, abs=1e-12)


def test_property_mean_is_unbiased_under_draws_by_size() -> None:
    task = quadratic_task([1.0, 1.0, 1.0], [[1.0], [5.0], [-2.0]], [1, 2, 7])
    plan = Plan(
        local=SGD(lr=0.5, steps=1, batches="full"),
        rounds=1,
        selection=Weighted(cohort_size=2),
        aggregation=FedAvg(weighting="mean"),
        evaluate=NEVER,
    )
    moved = [float(run(task, plan, seed=s)[0].model[0]) for s in range(1500)]
    expected = 0.5 * np.average([1.0, 5.0, -2.0], weights=[1, 2, 7])  # from 0, Δ_i = −η e_i
    assert np.mean(moved) == pytest.approx(expected, abs=4 * np.std(moved) / np.sqrt(len(moved)))


def test_contract_nobody_moved_means_no_step() -> None:
    task = quadratic_task([1.0, 1.0], [[0.0], [0.0]], [1, 1])
    for weighting in ("mean", "ht", "ratio"):
        plan = Plan(
            local=SGD(lr=0.5, steps=3, batches="full"),
            rounds=2,
            selection=Uniform(cohort_size=1),
            aggregation=FedAvg(weighting=weighting),
            evaluate=NEVER,
        )
        final, _ = run(task, plan)
        assert torch.equal(final.model, torch.zeros(1, dtype=torch.float64))


def test_error_ht_without_inclusion_probabilities_says_what_to_do() -> None:
    with pytest.raises(
        UpdateError, match=r'weighting = "ht" needs inclusion probabilities.*Set aggregation\.weighting'
    ):
        FedAvg(weighting="ht").coefficients(facts([0.5, 0.5]))
