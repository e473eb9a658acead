"""APFL: the gradient of the mixture, its limits, and a shared path that does not know of it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call

from tests.support.personal_runs import (
    CURVATURES,
    QUADRATICS,
    TARGETS,
    kept,
    network,
    objectives,
    personal_run,
    quadratics,
    without_world,
)
from turnout.engine import Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD, Adam, Meta, Moreau
from turnout.personal import APFL

H, E = np.array(CURVATURES)[:, None], np.array(TARGETS)


def test_golden_two_steps_by_hand() -> None:
    # client 1: F = ½x² − (0, 2)·x; η = 0.1, α = 0.5, from 0 in the second coordinate
    # step 1: w = 0.2, v̄ = 0.1, v = 0.05·(2 − 0.1) = 0.095; step 2: w = 0.38, v̄ = 0.2375, v = 0.095 + 0.05·1.7625
    state, _ = personal_run(quadratics(), APFL(mixing=0.5), rounds=1, local=SGD(lr=0.1, steps=2))

    assert kept(state)[1].tolist() == pytest.approx([0.0, 0.183125], abs=1e-15)


def test_golden_the_own_model_may_have_a_learning_rate_of_its_own() -> None:
    # as above, with a rate of 0.2 for v: 0.1·(2 − 0.1) = 0.19; v̄ = (0.19 + 0.38)/2 = 0.285; v = 0.19 + 0.1·1.715
    state, _ = personal_run(quadratics(), APFL(mixing=0.5, lr=0.2), rounds=1, local=SGD(lr=0.1, steps=2))

    assert kept(state)[1].tolist() == pytest.approx([0.0, 0.3615], abs=1e-15)


def test_closed_form_the_mixture_reaches_the_clients_optimum_where_the_share_is_not_zero() -> None:
    _, records = personal_run(quadratics(), APFL(mixing=0.4), rounds=200)

    # v moves until ∇F_i(v̄) = 0 at the mixture with the last local model, so v̄ is near e_i/h_i, not at it: x ≠ w_i
    shared = QUADRATICS.fedavg_fixed_point(None, 0.1, [3, 3, 3])
    last_local = E / H + (1 - 0.1 * H) ** 3 * (shared - E / H)
    assert (records[-1].personal["mixture loss"] < objectives(0.5 * (last_local + shared))).all()
    assert (records[-1].personal["mixture loss"] >= objectives(E / H) - 1e-12).all()


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
def test_identity_the_shared_path_is_the_same_for_every_share(mixing: float) -> None:
    task, local = network(), SGD(lr=0.1, epochs=1, batch_size=4)
    plain, plain_records = personal_run(task, None, local=local)
    final, records = personal_run(task, APFL(mixing=mixing, mixing_lr=0.1), local=local)

    assert torch.equal(plain.model, final.model)
    assert [without_world(r) for r in plain_records] == [without_world(r) for r in records]


def test_identity_a_share_of_one_is_training_alone() -> None:
    state, _ = personal_run(quadratics(), APFL(mixing=1.0), rounds=5)

    assert np.allclose(kept(state).numpy(), E / H * (1 - (1 - 0.1 * H) ** 15), rtol=0, atol=1e-13)


def test_identity_a_share_of_zero_uses_the_shared_model() -> None:
    state, records = personal_run(quadratics(), APFL(mixing=0.0), rounds=5)

    assert kept(state).tolist() == [[0.0, 0.0]] * 3
    assert np.allclose(records[-1].personal["mixture loss"], objectives(np.tile(state.model.numpy(), (3, 1))))


def test_property_the_share_moves_against_its_finite_difference() -> None:
    task, lr = network(), 0.05
    first, _ = personal_run(task, APFL(mixing=0.5, mixing_lr=lr), rounds=2, local=SGD(lr=0.1, steps=2, batches="full"))
    before, _ = personal_run(task, APFL(mixing=0.5), rounds=1, local=SGD(lr=0.1, steps=2, batches="full"))
    after = kept(first, "mixing")[:, 0]

    def loss(client: int, share: float) -> float:
        mixture = share * kept(before)[client] + (1 - share) * before.model
        slab = task.federation.train.fetch(np.array([client]))
        rows = slice(int(slab.starts[0]), int(slab.starts[0] + slab.sizes[0]))
        order = slab.order[rows] if slab.order is not None else torch.arange(rows.start, rows.stop)
        out = functional_call(task.module, task.layout.views(mixture), (slab.x[order],))
        return float(task.loss(out, slab.y[order]).mean())

    for client in range(6):
        slope = (loss(client, 0.5 + 1e-5) - loss(client, 0.5 - 1e-5)) / 2e-5
        assert float(after[client]) == pytest.approx(0.5 - lr * slope, abs=1e-8)


def test_golden_the_mixture_that_is_measured_has_the_share_that_each_client_learned() -> None:
    state, records = personal_run(quadratics(), APFL(mixing=0.5, mixing_lr=0.05), rounds=3)
    share = kept(state, "mixing")
    assert (share != 0.5).all()
    mixtures = share * kept(state) + (1 - share) * state.model
    assert np.allclose(records[-1].personal["mixture loss"], objectives(mixtures.numpy()), rtol=0, atol=1e-14)


def test_contract_engines_agree() -> None:
    task, rule = network(), APFL(mixing=0.4, mixing_lr=0.05)
    local = SGD(lr=0.1, epochs=1, batch_size=5)
    one, _ = personal_run(task, rule, local=local, engine=Sequential())
    two, _ = personal_run(task, rule, local=local, engine=Vectorised(deterministic=True))

    assert torch.allclose(kept(one), kept(two), rtol=0, atol=1e-12)
    assert torch.allclose(kept(one, "mixing"), kept(two, "mixing"), rtol=0, atol=1e-12)


def test_costs_count_the_shared_steps_once() -> None:
    _, plain = personal_run(quadratics(), None, rounds=1)
    _, fixed = personal_run(quadratics(), APFL(), rounds=1)
    _, adaptive = personal_run(quadratics(), APFL(mixing_lr=0.1), rounds=1)

    assert fixed[1].costs.gradient_evaluations == 2 * plain[1].costs.gradient_evaluations == 18
    assert adaptive[1].costs.gradient_evaluations == 21


@pytest.mark.parametrize(
    "local",
    [
        SGD(lr=0.1, steps=2, momentum=0.9),
        SGD(lr=0.1, steps=2, weight_decay=0.1),
        SGD(lr=0.1, steps=2, prox_strength=0.1),
        SGD(lr=0.1, steps=2, control="average"),
        Adam(lr=0.1, steps=2),
        Moreau(lr=0.1, steps=2, strength=1.0),
        Meta(lr=0.1, steps=2),
    ],
    ids=str,
)
def test_error_shared_steps_that_are_not_plain_sgd(local: Any) -> None:
    with pytest.raises(ConfigError, match=f"APFL does the shared steps a second time .* and {type(local).__name__} "):
        personal_run(quadratics(), APFL(), rounds=1, local=local)
