"""pFedMe and Per-FedAvg: closed forms on quadratics, cycles of mini-batches, and what is evaluated."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.personal_runs import CURVATURES, TARGETS, kept, network, objectives, personal_run, quadratics
from turnout.aggregation import FedNova
from turnout.engine import Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD, Meta, Moreau
from turnout.local.batches import draw_batches, samples_used
from turnout.personal import FineTune
from turnout.personal import Moreau as InnerSolution
from turnout.streams import Streams

H, E = np.array(CURVATURES)[:, None], np.array(TARGETS)


def fixed_point(weights: np.ndarray) -> np.ndarray:
    return np.asarray((weights * (E / H)).sum(0) / weights.sum())


def test_closed_form_pfedme_with_an_exact_inner_solution() -> None:
    local = Moreau(lr=0.5, steps=1, strength=2.0, inner_steps=40, inner_lr=0.3)
    final, records = personal_run(quadratics(), InnerSolution(), local=local, rounds=80)
    shared = fixed_point(2.0 * H / (H + 2.0))
    inner = (E + 2.0 * shared) / (H + 2.0)

    assert np.allclose(final.model.numpy(), shared, rtol=0, atol=1e-10)
    assert np.allclose(kept(final).numpy(), inner, rtol=0, atol=1e-9)
    assert np.allclose(records[-1].personal["personal loss"], objectives(inner), rtol=0, atol=1e-9)


def test_closed_form_pfedme_after_few_inner_steps() -> None:
    local = Moreau(lr=0.05, steps=1, strength=2.0, inner_steps=3, inner_lr=0.1)
    final, _ = personal_run(quadratics(), InnerSolution(), local=local, rounds=1)
    optimum = E / (H + 2.0)
    inner = optimum - (1 - 0.1 * (H + 2.0)) ** 3 * optimum  # from θ = w = 0

    assert np.allclose(kept(final).numpy(), inner, rtol=0, atol=1e-14)
    assert np.allclose(final.model.numpy(), (0.05 * 2.0 * inner).mean(0), rtol=0, atol=1e-14)


def test_identity_pfedme_with_a_strong_pull_is_local_sgd() -> None:
    local = Moreau(lr=0.1, steps=3, strength=1e6, inner_steps=3, inner_lr=1e-6)  # one inner step is nearly exact
    final, _ = personal_run(quadratics(), None, local=local, rounds=4)
    plain, _ = personal_run(quadratics(), None, local=SGD(lr=0.1, steps=3), rounds=4)

    assert torch.allclose(final.model, plain.model, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ["first", "hessian-free"])
def test_identity_per_fedavg_without_an_inner_step_is_local_sgd(order: Any) -> None:
    final, _ = personal_run(quadratics(), None, local=Meta(lr=0.1, steps=3, inner_lr=1e-9, order=order), rounds=4)
    plain, _ = personal_run(quadratics(), None, local=SGD(lr=0.1, steps=3), rounds=4)

    assert torch.allclose(final.model, plain.model, rtol=0, atol=1e-7)


def test_golden_pfedme_goes_on_with_its_inner_model_between_mini_batches() -> None:
    # client 2: h = 2, first coordinate, e = −1; λ = 1, η_p = 0.5, K = 1, η = 0.1, two mini-batches from 0
    # θ = 0 − 0.5·(0 + 1) = −0.5, w = 0.1·(−0.5) = −0.05; θ = −0.5 − 0.5·(2·−0.5 + 1 + (−0.5 + 0.05)) = −0.275
    local = Moreau(lr=0.1, steps=2, strength=1.0, inner_steps=1, inner_lr=0.5)
    final, _ = personal_run(quadratics(), InnerSolution(), local=local, rounds=1)

    assert float(kept(final)[2, 0]) == pytest.approx(-0.275, abs=1e-15)


@pytest.mark.parametrize(("order", "power"), [("first", 1), ("hessian-free", 2)])
@pytest.mark.parametrize("delta", [0.5, 1e-3])
def test_closed_form_per_fedavg(order: Any, power: int, delta: float) -> None:
    how: dict[str, Any] = {"delta": delta} if order == "hessian-free" else {}
    final, _ = personal_run(
        quadratics(), FineTune(steps=1), local=Meta(lr=0.8, steps=1, inner_lr=0.2, order=order, **how), rounds=60
    )

    assert np.allclose(final.model.numpy(), fixed_point(H * (1 - 0.2 * H) ** power), rtol=0, atol=1e-9)


def test_fine_tuning_takes_the_inner_rate_and_reports_the_loss_after_the_step() -> None:
    local = Meta(lr=0.05, steps=1, inner_lr=0.2)
    final, records = personal_run(quadratics(), FineTune(steps=1), local=local, rounds=3)
    x = final.model.numpy()

    assert np.allclose(records[-1].personal["personal loss"], objectives(x - 0.2 * (H * x - E)), rtol=0, atol=1e-14)


def test_identity_no_steps_of_fine_tuning_are_the_shared_model() -> None:
    final, records = personal_run(quadratics(), FineTune(steps=0), rounds=3)

    assert np.allclose(records[-1].personal["personal loss"], objectives(np.tile(final.model.numpy(), (3, 1))))


@pytest.mark.parametrize(
    "local",
    [
        Moreau(lr=0.05, epochs=1, batch_size=4, strength=2.0, inner_steps=3, inner_lr=0.1),
        Meta(lr=0.05, epochs=1, batch_size=4, inner_lr=0.1),
        Meta(lr=0.05, steps=2, batch_size=4, inner_lr=0.1, order="hessian-free"),
    ],
    ids=["pFedMe", "first order", "Hessian-free"],
)
def test_contract_engines_agree(local: Moreau | Meta) -> None:
    task = network()
    one, _ = personal_run(task, None, local=local, engine=Sequential())
    two, _ = personal_run(task, None, local=local, engine=Vectorised(deterministic=True))

    assert torch.allclose(one.model, two.model, rtol=0, atol=1e-11)


def test_contract_steps_of_a_cycle_share_their_mini_batches() -> None:
    keys, sizes = Streams(3).keys("batches", 1, np.arange(4)), np.array([5, 9, 12, 7])
    steps = np.array([8, 6, 3, 8])
    plain = draw_batches(keys, sizes, steps, 3, "shuffled")
    cycled = draw_batches(keys, sizes, steps, 3, "shuffled", (0, 1, 2, 2))

    for step, number in enumerate((0, 1, 2, 2, 3, 4, 5, 5)):
        at_work = steps > step
        assert np.array_equal(cycled.counts[at_work, step] > 0, np.ones(at_work.sum(), dtype=bool))
        reach = at_work & (number < steps)
        assert np.array_equal(cycled.positions[reach, step, :1], plain.positions[reach, number, :1])
    assert np.array_equal(samples_used(sizes, steps, 3, "shuffled", (0, 1, 2, 2)), cycled.counts.sum(1))


def test_costs_count_every_gradient() -> None:
    _, plain = personal_run(quadratics(), None, rounds=1, local=SGD(lr=0.1, steps=3))
    _, moreau = personal_run(quadratics(), None, rounds=1, local=Moreau(lr=0.1, steps=3, inner_steps=5, inner_lr=0.01))
    _, meta = personal_run(quadratics(), None, rounds=1, local=Meta(lr=0.1, steps=3, order="hessian-free"))

    assert moreau[1].costs.gradient_evaluations == 5 * plain[1].costs.gradient_evaluations
    assert meta[1].costs.gradient_evaluations == 4 * plain[1].costs.gradient_evaluations


def test_bad_input_combinations_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="needs inner_lr · strength below 2"):
        Moreau(lr=0.1, steps=1, strength=15.0, inner_lr=0.2)
    with pytest.raises(ConfigError, match="no weighted sum of gradients"):
        personal_run(quadratics(), None, local=Meta(lr=0.1, steps=1), aggregation=FedNova())
    with pytest.raises(ConfigError, match='local solver "moreau" finds; SGD has none'):
        personal_run(quadratics(), InnerSolution())
