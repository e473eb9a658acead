"""The local solver: against PyTorch's own optimisers, the closed forms of its work, FedProx's identities."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import blob_task, quadratic_task, run
from turnout.coordinator import Cadence, Plan
from turnout.local import SGD
from turnout.local.sgd import accumulated_work
from turnout.protocols import Population, View
from turnout.streams import Streams

NEVER = Cadence(every=10**9)


def moved(task, local, rounds=1, engine=None):
    return run(task, Plan(local=local, rounds=rounds, evaluate=NEVER), engine=engine)[0].model


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"momentum": 0.9}, {"momentum": 0.9}),
        ({"weight_decay": 0.1}, {"weight_decay": 0.1}),
        ({"momentum": 0.8, "weight_decay": 0.1}, {"momentum": 0.8, "weight_decay": 0.1}),
    ],
)
def test_identity_same_as_torch_sgd(ours, theirs, any_engine):
    task = blob_task(1)
    final = moved(task, SGD(lr=0.1, steps=6, batches="full", **ours), engine=any_engine())
    x, y = task.federation.train.of(0)
    optimiser = torch.optim.SGD(task.module.parameters(), lr=0.1, **theirs)
    for _ in range(6):
        optimiser.zero_grad()
        task.loss(task.module(x), y).mean().backward()
        optimiser.step()
    assert torch.allclose(final, task.layout.flatten(task.module), atol=1e-12)


def test_identity_clipping_same_as_torch(any_engine):
    task = blob_task(1)
    final = moved(task, SGD(lr=0.5, steps=3, batches="full", clip_norm=0.2), engine=any_engine())
    x, y = task.federation.train.of(0)
    optimiser = torch.optim.SGD(task.module.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        task.loss(task.module(x), y).mean().backward()
        assert torch.nn.utils.clip_grad_norm_(task.module.parameters(), 0.2) > 0.2
        optimiser.step()
    assert torch.allclose(final, task.layout.flatten(task.module), atol=1e-6)  # torch adds 1e-6 to the norm


def test_identity_one_full_step_ignores_the_pull(any_engine):
    task = blob_task(4)
    plain = moved(task, SGD(lr=0.1, steps=1, batches="full"))
    pulled = moved(task, SGD(lr=0.1, steps=1, batches="full", prox_strength=3.0), engine=any_engine())
    assert torch.allclose(pulled, plain, atol=1e-12)


def test_identity_a_vanishing_pull_is_fedavg(any_engine):
    task = blob_task(4)
    plain = moved(task, SGD(lr=0.1, batch_size=5, epochs=2), 2)
    pulled = moved(task, SGD(lr=0.1, batch_size=5, epochs=2, prox_strength=1e-15), 2, any_engine())
    assert torch.allclose(pulled, plain, atol=1e-12)


def test_convergence_the_pull_meets_the_proximal_point():
    # argmin ½h x² − e x + ½μ(x − x₀)² = (e + μ x₀) / (h + μ), from x₀ = 0
    task = quadratic_task([2.0], [[3.0]], [1])
    final = moved(task, SGD(lr=0.05, steps=2000, batches="full", prox_strength=4.0))
    assert float(final) == pytest.approx(3.0 / (2.0 + 4.0), abs=1e-8)


def test_golden_momentum_and_pull_by_hand(any_engine):
    # h = 1, e = 1, η = ½, ρ = ½, μ = 1, from 0.
    # k=0: g = −1, v = −1, x = ½;  k=1: g = −½, v = −1, pull ½, x = ½ − ½(−1 + ½) = ¾
    # k=2: g = −¼, v = −¾, pull ¾, x = ¾ − ½(−¾ + ¾) = ¾     (a pull that leaked into v would give another number)
    task = quadratic_task([1.0], [[1.0]], [1])
    local = SGD(lr=0.5, steps=3, batches="full", momentum=0.5, prox_strength=1.0)
    assert float(moved(task, local, engine=any_engine())) == pytest.approx(0.75, abs=1e-12)


def test_golden_decay_by_hand(any_engine):
    # h = 1, e = 1, η = ½, γ = ½: x = ½; then ½ + ¼·½ = 0.625; then 0.625 + ⅛·0.375
    task = quadratic_task([1.0], [[1.0]], [1])
    local = SGD(lr=0.5, steps=3, batches="full", lr_decay=0.5)
    assert float(moved(task, local, engine=any_engine())) == pytest.approx(0.671875, abs=1e-12)


def closed_form(tau, rho=0.0, alpha=0.0, gamma=1.0):
    if rho:
        return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    if alpha:
        return (1 - (1 - alpha) ** tau) / alpha
    return tau if gamma == 1 else (1 - gamma**tau) / (1 - gamma)


def work(tau, *, lr=0.1, rho=0.0, mu=0.0, gamma=1.0):
    one = lambda v: np.full(1, v)  # noqa: E731
    return accumulated_work(np.array([tau]), lr=one(lr), momentum=one(rho), prox_strength=one(mu), lr_decay=one(gamma))[
        0
    ]


@given(tau=st.integers(1, 60), rho=st.floats(0.01, 0.99), mu=st.floats(0.01, 5), gamma=st.floats(0.5, 0.999))
@settings(max_examples=60)
def test_property_work_matches_the_closed_forms(tau, rho, mu, gamma):
    assert work(tau) == tau
    assert work(tau, rho=rho) == pytest.approx(closed_form(tau, rho=rho), rel=1e-9)
    assert work(tau, mu=mu) == pytest.approx(closed_form(tau, alpha=0.1 * mu), rel=1e-9)
    assert work(tau, gamma=gamma) == pytest.approx(closed_form(tau, gamma=gamma), rel=1e-9)


@pytest.mark.parametrize(
    "extra",
    [
        {"momentum": 0.9},
        {"prox_strength": 2.0},
        {"lr_decay": 0.8},
        {"momentum": 0.9, "prox_strength": 0.35, "lr_decay": 0.9},
    ],
)
def test_identity_work_is_the_displacement_under_a_constant_gradient(extra):
    # F = −x has gradient −1 everywhere, so the displacement is η_l‖a‖₁
    task = quadratic_task([0.0], [[1.0]], [1])
    local = SGD(lr=0.1, steps=5, batches="full", **extra)
    settings_ = local.settings(np.array([0]), None)
    expected = 0.1 * local.local_work(np.array([5]), settings_)[0]
    assert float(moved(task, local)) == pytest.approx(expected, rel=1e-10)
    assert expected != pytest.approx(0.5)


def test_golden_momentum_with_pull_is_not_counted_twice():
    # τ = 5, ρ = 0.9, ημ = 0.035: 12.51, where the published recursion gives 16.74
    assert work(5, lr=0.1, rho=0.9, mu=0.35) == pytest.approx(12.51, abs=0.005)


def test_property_drawn_epochs_include_both_ends_and_are_keyed():
    population = Population.of(np.full(400, 10))
    view = View(round=1, rounds=1, streams=Streams(0), population=population, model=torch.zeros(1))
    local = SGD(lr=0.1, batch_size=4, epochs=(2, 5))
    everyone = local.asked(np.arange(400), view)
    assert set(everyone.tolist()) == {2 * 3, 3 * 3, 4 * 3, 5 * 3}  # three batches an epoch
    assert np.array_equal(local.asked(np.array([7, 100]), view), everyone[[7, 100]])
