"""Ditto: closed forms on quadratics, and a shared path that does not know of it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.personal_runs import (
    CURVATURES,
    QUADRATICS,
    TARGETS,
    THREE_STEPS,
    kept,
    network,
    objectives,
    personal_run,
    quadratics,
    without_world,
)
from turnout.engine import Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD, Meta, Moreau
from turnout.personal import Ditto
from turnout.selection import Uniform

H, E = np.array(CURVATURES)[:, None], np.array(TARGETS)


@pytest.mark.parametrize("rule", [Ditto(strength=0.7), Ditto(strength=0.7, order="after", steps=5, lr=0.2)])
def test_closed_form_the_reported_loss_is_that_of_the_personal_optimum(rule: Ditto) -> None:
    _, records = personal_run(quadratics(), rule, rounds=90)
    shared = QUADRATICS.fedavg_fixed_point(None, 0.1, [3, 3, 3])
    optimum = (E + 0.7 * shared) / (H + 0.7)

    assert np.allclose(records[-1].personal["personal loss"], objectives(optimum), rtol=0, atol=1e-12)
    assert records[-1].metrics["personal_loss"] == pytest.approx(objectives(optimum).mean(), abs=1e-12)


@given(strength=st.floats(0.0, 3.0), lr=st.floats(0.01, 0.4), steps=st.integers(1, 6))
def test_property_after_k_steps_the_distance_to_the_optimum_has_shrunk_k_times(
    strength: float, lr: float, steps: int
) -> None:
    state, _ = personal_run(quadratics(), Ditto(strength=strength, lr=lr, order="after", steps=steps), rounds=1)
    optimum = E / (H + strength)  # the round's model is 0
    expected = optimum + (1 - lr * (H + strength)) ** steps * (0 - optimum)

    assert np.allclose(kept(state).numpy(), expected, rtol=0, atol=1e-12)


def test_golden_one_round_by_hand() -> None:
    # F_0 = ¼x² − e·x, e = (1, 0), η = 0.1, λ = 1, from 0: v ← v + 0.1(e − 0.5v − v): 0.1, then 0.1 + 0.1(1 − 0.15)
    state, _ = personal_run(quadratics(), Ditto(strength=1.0), rounds=1, local=SGD(lr=0.1, steps=2))

    assert kept(state)[0].tolist() == pytest.approx([0.185, 0.0], abs=1e-15)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(deterministic=True)], ids=["sequential", "vectorised"])
@pytest.mark.parametrize("strength", [0.0, 0.5, 5.0])
def test_identity_the_shared_path_is_the_same_bit_for_bit(engine: Sequential, strength: float) -> None:
    task, local = network(), SGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
    plain, plain_records = personal_run(task, None, local=local, engine=engine)
    final, records = personal_run(task, Ditto(strength=strength), local=local, engine=engine)

    assert torch.equal(plain.model, final.model)
    assert [without_world(r) for r in plain_records] == [without_world(r) for r in records]


def test_identity_without_a_pull_every_client_trains_alone() -> None:
    state, _ = personal_run(quadratics(), Ditto(strength=0.0), rounds=5)

    assert np.allclose(kept(state).numpy(), E / H * (1 - (1 - 0.1 * H) ** 15), rtol=0, atol=1e-13)


def test_identity_one_step_from_the_shared_model_is_the_local_model() -> None:
    task, local = network(), SGD(lr=0.1, steps=1, batch_size=4)
    state, _ = personal_run(task, Ditto(strength=3.0), rounds=1, local=local)
    start, steps = task.layout.flatten(task.module), kept(state)
    weights = torch.from_numpy(task.federation.weights)

    assert torch.allclose(weights @ steps, state.model, rtol=0, atol=1e-14)  # FedAvg's model: the mean of local ones
    assert not torch.allclose(steps[0], start)


@pytest.mark.parametrize(
    ("local", "batches"),
    [
        (Moreau(lr=0.1, steps=2, batch_size=4, strength=1.0, inner_steps=3), 2),
        (Meta(lr=0.1, steps=2, batch_size=4), 4),
        (Meta(lr=0.1, steps=2, batch_size=4, order="hessian-free"), 6),
    ],
)
def test_identity_together_there_is_one_personal_step_on_every_mini_batch(local: Any, batches: int) -> None:
    plain = SGD(lr=0.1, steps=batches, batch_size=4)
    state, records = personal_run(network(), Ditto(), rounds=1, local=local)
    expected, others = personal_run(network(), Ditto(), rounds=1, local=plain)
    shared = [personal_run(network(), None, rounds=1, local=each)[1][1].costs for each in (local, plain)]

    assert torch.allclose(kept(state), kept(expected), rtol=0, atol=1e-14)
    own = [run[1].costs.gradient_evaluations for run in (records, others)]
    assert own[0] - shared[0].gradient_evaluations == own[1] - shared[1].gradient_evaluations


def test_contract_engines_agree() -> None:
    task, local = network(), SGD(lr=0.1, epochs=1, batch_size=5)
    one, first = personal_run(task, Ditto(strength=0.3), local=local, engine=Sequential())
    two, second = personal_run(task, Ditto(strength=0.3), local=local, engine=Vectorised(deterministic=True))

    assert torch.allclose(kept(one), kept(two), rtol=0, atol=1e-12)
    for name, values in first[-1].personal.items():
        assert np.allclose(values, second[-1].personal[name], rtol=0, atol=1e-12)


def test_costs_gradients_count_both_passes_and_bytes_do_not_change() -> None:
    _, plain = personal_run(quadratics(), None, rounds=2)
    _, together = personal_run(quadratics(), Ditto(), rounds=2)
    _, after = personal_run(quadratics(), Ditto(order="after", steps=7), rounds=2)

    assert together[1].costs.gradient_evaluations == 2 * plain[1].costs.gradient_evaluations == 18
    assert after[1].costs.gradient_evaluations == plain[1].costs.gradient_evaluations + 21
    assert together[1].costs.bytes_up == plain[1].costs.bytes_up


def test_a_client_that_was_never_asked_uses_the_first_model() -> None:
    task = network()
    state, records = personal_run(task, Ditto(), rounds=1, selection=Uniform(cohort_size=2))
    asked = records[1].asked
    others = np.setdiff1d(np.arange(6), asked)

    assert torch.equal(kept(state)[others], task.layout.flatten(task.module).repeat(4, 1))
    assert not torch.equal(kept(state)[asked], task.layout.flatten(task.module).repeat(2, 1))


def test_a_personal_model_that_diverges_stays_and_the_run_goes_on() -> None:
    task = quadratics()
    final, records = personal_run(task, Ditto(strength=0.0, lr=1e12, order="after", steps=40), rounds=2)
    plain, _ = personal_run(task, None, rounds=2)

    assert torch.equal(final.model, plain.model)
    assert kept(final).tolist() == [[0.0, 0.0]] * 3
    assert "3 clients' own models were not finite and stay as they were" in records[1].events


def test_bad_input_a_pull_that_diverges_is_refused() -> None:
    with pytest.raises(ConfigError, match="personal steps diverge where the learning rate times the strength is 2"):
        personal_run(quadratics(), Ditto(strength=20.0), local=THREE_STEPS)
