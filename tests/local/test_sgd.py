"""The local solver: against PyTorch's own optimisers, the closed forms of its work, FedProx's identities."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local_claims import (
    claim_clipping_bounds_the_data_alone,
    claim_momentum_starts_afresh_every_round,
    claim_the_pull_meets_the_proximal_point,
    claim_the_pull_stays_out_of_the_momentum,
    claim_work_is_the_displacement_under_a_constant_gradient,
    moved,
    view,
)
from tests.support.tasks import blob_task, quadratic_task, train_of
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.local.sgd import accumulated_work
from turnout.protocols import SlotUpdate


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"momentum": 0.9}, {"momentum": 0.9}),
        ({"weight_decay": 0.1}, {"weight_decay": 0.1}),
        ({"momentum": 0.8, "weight_decay": 0.1}, {"momentum": 0.8, "weight_decay": 0.1}),
        ({"momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
        (
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        ),
    ],
)
def test_identity_same_as_torch_sgd(
    ours: dict[str, Any], theirs: dict[str, Any], any_engine: Callable[[], Engine]
) -> None:
    task = blob_task(1)
    final = moved(task, SGD(lr=0.1, steps=6, batches="full", **ours), engine=any_engine())
    x, y = train_of(task.federation).of(0)
    optimiser = torch.optim.SGD(task.module.parameters(), lr=0.1, **theirs)
    for _ in range(6):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(task.module(x), y).mean())
        optimiser.step()
    assert torch.allclose(final, task.layout.flatten(task.module), rtol=0, atol=1e-12)


def test_identity_clipping_same_as_torch(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(1)
    final = moved(task, SGD(lr=0.5, steps=3, batches="full", clip_norm=0.2), engine=any_engine())
    x, y = train_of(task.federation).of(0)
    optimiser = torch.optim.SGD(task.module.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(task.module(x), y).mean())
        assert torch.nn.utils.clip_grad_norm_(task.module.parameters(), 0.2) > 0.2
        optimiser.step()
    assert torch.allclose(final, task.layout.flatten(task.module), atol=1e-6)  # torch adds 1e-6 to the norm


def test_identity_one_full_step_ignores_the_pull(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(4)
    plain = moved(task, SGD(lr=0.1, steps=1, batches="full"))
    pulled = moved(task, SGD(lr=0.1, steps=1, batches="full", prox_strength=3.0), engine=any_engine())
    assert torch.allclose(pulled, plain, rtol=0, atol=1e-12)


def test_identity_a_vanishing_pull_is_fedavg(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(4)
    plain = moved(task, SGD(lr=0.1, batch_size=5, epochs=2), 2)
    pulled = moved(task, SGD(lr=0.1, batch_size=5, epochs=2, prox_strength=1e-15), 2, any_engine())
    assert torch.allclose(pulled, plain, rtol=0, atol=1e-12)


def test_convergence_the_pull_meets_the_proximal_point() -> None:
    claim_the_pull_meets_the_proximal_point(SGD)


def test_golden_momentum_and_pull_by_hand(any_engine: Callable[[], Engine]) -> None:
    claim_the_pull_stays_out_of_the_momentum(SGD, any_engine())


def test_golden_clipping_comes_before_the_pull(any_engine: Callable[[], Engine]) -> None:
    claim_clipping_bounds_the_data_alone(SGD, any_engine())


def test_contract_momentum_starts_afresh_every_round() -> None:
    claim_momentum_starts_afresh_every_round(SGD)


def test_golden_decay_by_hand(any_engine: Callable[[], Engine]) -> None:
    # h = 1, e = 1, η = ½, γ = ½: x = ½; then ½ + ¼·½ = 0.625; then 0.625 + ⅛·0.375
    task = quadratic_task([1.0], [[1.0]], [1])
    local = SGD(lr=0.5, steps=3, batches="full", lr_decay=0.5)
    assert float(moved(task, local, engine=any_engine())) == pytest.approx(0.671875, abs=1e-12)


def closed_form(tau: int, rho: float = 0.0, alpha: float = 0.0, gamma: float = 1.0) -> float:
    if rho:
        return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    if alpha:
        return (1 - (1 - alpha) ** tau) / alpha
    return tau if gamma == 1 else (1 - gamma**tau) / (1 - gamma)


def work(tau: int, *, lr: float = 0.1, rho: float = 0.0, mu: float = 0.0, gamma: float = 1.0) -> Any:
    one: Callable[..., Any] = lambda v: np.full(1, v)  # noqa: E731
    return accumulated_work(np.array([tau]), lr=one(lr), momentum=one(rho), prox_strength=one(mu), lr_decay=one(gamma))[
        0
    ]


@given(tau=st.integers(1, 60), rho=st.floats(0.01, 0.99), mu=st.floats(0.01, 5), gamma=st.floats(0.5, 0.999))
@settings(max_examples=60)
def test_property_work_matches_the_closed_forms(tau: int, rho: float, mu: float, gamma: float) -> None:
    assert work(tau) == tau
    assert work(tau, rho=rho) == pytest.approx(closed_form(tau, rho=rho), rel=1e-10)
    assert work(tau, mu=mu) == pytest.approx(closed_form(tau, alpha=0.1 * mu), rel=1e-10)
    assert work(tau, gamma=gamma) == pytest.approx(closed_form(tau, gamma=gamma), rel=1e-10)


def weight_of(k: int, tau: int, lr: float, rho: float, mu: float, gamma: float) -> Any:
    """a_k: gradient k is in the velocity of every later step j, at ρʲ⁻ᵏ, and shrinks with each pull after that."""
    pulls = [1 - lr * gamma**step * mu for step in range(tau)]
    return sum(gamma**j * rho ** (j - k) * np.prod(pulls[j + 1 :]) for j in range(k, tau))


@given(
    tau=st.integers(1, 12),
    rho=st.sampled_from([0.0, 0.5, 0.9]),
    mu=st.sampled_from([0.0, 0.35, 2.0]),
    gamma=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 99),
)
def test_property_the_change_is_each_gradient_times_its_weight(
    tau: int, rho: float, mu: float, gamma: float, seed: int
) -> None:
    lr, gradients = 0.1, torch.from_numpy(np.random.default_rng(seed).normal(size=(tau, 1, 3)))
    local = SGD(lr=lr, steps=tau, momentum=rho, prox_strength=mu, lr_decay=gamma)
    param, anchor = torch.ones(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
    (state,) = local.begin([param])
    numbers = {"lr": lr, **local.numbers()}
    for k, grad in enumerate(gradients):
        local.update(SlotUpdate(param=param, grad=grad.clone(), anchor=anchor, state=state, settings=numbers, step=k))
    weights = np.array([weight_of(k, tau, lr, rho, mu, gamma) for k in range(tau)])  # a
    expected = lr * np.einsum("k,kd->d", weights, gradients[:, 0].numpy())  # η_l G a
    assert (anchor - param)[0].numpy() == pytest.approx(expected, abs=1e-10)
    assert work(tau, lr=lr, rho=rho, mu=mu, gamma=gamma) == pytest.approx(weights.sum(), rel=1e-10)


@pytest.mark.parametrize(
    "extra",
    [
        {"momentum": 0.9},
        {"prox_strength": 2.0},
        {"lr_decay": 0.8},
        {"momentum": 0.9, "nesterov": True, "prox_strength": 0.35, "lr_decay": 0.9},
        {"momentum": 0.9, "prox_strength": 0.35, "lr_decay": 0.9},
    ],
)
def test_identity_work_is_the_displacement_under_a_constant_gradient(extra: dict[str, float]) -> None:
    claim_work_is_the_displacement_under_a_constant_gradient(SGD, **extra)


def test_golden_momentum_with_pull_is_not_counted_twice() -> None:
    # τ = 5, ρ = 0.9, ημ = 0.035: 12.51, where the published recursion gives 16.74
    assert work(5, lr=0.1, rho=0.9, mu=0.35) == pytest.approx(12.51, abs=0.005)


def test_property_drawn_epochs_include_both_ends_and_are_keyed() -> None:
    local = SGD(lr=0.1, batch_size=4, epochs=(2, 5))
    now = view(clients=400)
    everyone = local.asked(np.arange(400), now)
    assert set(everyone.tolist()) == {2 * 3, 3 * 3, 4 * 3, 5 * 3}  # three batches an epoch
    assert np.array_equal(local.asked(np.array([7, 100]), now), everyone[[7, 100]])


def test_property_drawn_steps_include_both_ends() -> None:
    asked = SGD(lr=0.1, batch_size=4, steps=(2, 5)).asked(np.arange(400), view(clients=400))
    assert set(asked.tolist()) == {2, 3, 4, 5}


def test_golden_the_work_of_nesterov_momentum_by_hand() -> None:
    # ρ = ½: B = 1, 1.5, 1.75; a step weighs 1 + ρB = 1.5, 1.75, 1.875
    work = SGD(lr=0.1, steps=3, momentum=0.5, nesterov=True).local_work(
        np.array([1, 2, 3]), {"lr": np.full(3, 0.1), "momentum": np.full(3, 0.5)}
    )
    assert work.tolist() == [1.5, 3.25, 5.125]


def test_error_nesterov_needs_momentum() -> None:
    with pytest.raises(ConfigError, match=r"nesterov.*momentum"):
        SGD(lr=0.1, steps=1, nesterov=True)
