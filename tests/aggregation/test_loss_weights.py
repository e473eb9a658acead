"""Rules that weigh updates by losses: q-FFL, TERM and agnostic federated learning, and what they minimise."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.incentive_checks import (
    assert_a_step_of_q_ffl,
    assert_the_largest_tilt_is_the_worst_client_and_the_smallest_the_best,
    assert_two_steps_of_agnostic,
)
from tests.support.rows_by_hand import combined, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from tests.support.tasks import blob_task
from turnout.aggregation import QFFL, Agnostic, Appeal, FedAvg, Tilted
from turnout.aggregation.agnostic import LEAST_WEIGHT, ascended, followed
from turnout.asynchrony import FedBuff
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import UpdateError
from turnout.filtering import DataSize
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD
from turnout.selection import DivFL, PowerOfChoice, Uniform, Weighted

RULES: dict[str, Any] = {
    "agnostic": Agnostic(rate=0.5),
    "appeal": Appeal(epochs=2),
    "q-ffl": QFFL(power=2.0),
    "tilted": Tilted(tilt=1.5),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
LOSSES = st.lists(st.floats(0, 50).map(lambda value: round(value, 3)), min_size=1, max_size=6)

CENTRES, CURVATURES, SIZES = np.array([-1.0, 0.5, 3.0]), np.array([1.0, 2.0, 0.5]), [1, 2, 3]
OFFSET = 0.2  # added to every loss, so that the smallest is not zero


def losses_at(x: float) -> Any:
    """Return F_k(x)."""
    return 0.5 * CURVATURES * (x - CENTRES) ** 2 + OFFSET


def minimiser(objective: Callable[[Any], float]) -> float:
    """Return the minimiser of an objective between the centres, by golden-section search."""
    low, high, ratio = float(CENTRES.min()), float(CENTRES.max()), (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if objective(losses_at(left)) < objective(losses_at(right)) else (left, high)
    return (low + high) / 2


SHARES = np.array(SIZES) / sum(SIZES)
OBJECTIVES: dict[str, tuple[Any, Callable[[Any], float]]] = {
    "q = 0": (QFFL(power=0.0), lambda f: SHARES @ f),
    "q = 1": (QFFL(power=1.0), lambda f: SHARES @ f**2 / 2),
    "q = 3": (QFFL(power=3.0), lambda f: SHARES @ f**4 / 4),
    "q = 1, clients alike": (QFFL(power=1.0, weighting="mean"), lambda f: (f**2).mean()),
    "q = 0.5": (QFFL(power=0.5), lambda f: SHARES @ f**1.5),
    "t = 0": (Tilted(tilt=0.0), lambda f: SHARES @ f),
    "t = 1": (Tilted(tilt=1.0), lambda f: float(np.log(SHARES @ np.exp(f)))),
    "t = −0.3": (Tilted(tilt=-0.3), lambda f: float(np.log(SHARES @ np.exp(-0.3 * f)) / -0.3)),
    "t = 1, clients alike": (Tilted(tilt=1.0, weighting="mean"), lambda f: float(np.log(np.exp(f).mean()))),
    "worst case": (Agnostic(rate=0.05), lambda f: f.max()),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_convergence_each_rule_reaches_the_minimiser_of_its_objective(name: str) -> None:
    rule, objective = OBJECTIVES[name]
    x, lr = 0.0, 0.1
    memory: dict[str, Any] = {}
    for _ in range(1000):
        gradients = CURVATURES * (x - CENTRES)
        step = combined(rule, rows_of(lr * gradients[:, None], sizes=SIZES), memory, losses=losses_at(x))
        x, memory = x - float(step.direction), step.memory
    assert x == pytest.approx(minimiser(objective), abs=1e-3)


def test_golden_a_step_of_q_ffl() -> None:
    assert_a_step_of_q_ffl()


def test_golden_one_learning_rate_of_q_ffl_is_the_mean_over_draws() -> None:
    rows, rates = rows_of([[1.0], [2.0]], multiplicity=[3, 1]), np.array([0.1, 0.3])
    uneven = replace(rows, facts=replace(rows.facts, local_lr=rates))
    even = replace(rows, facts=replace(rows.facts, local_lr=np.full(2, 0.15)))  # (3 · 0.1 + 0.3) / 4
    one, other = (combined(QFFL(power=2.0), each, losses=[1.0, 2.0]) for each in (uneven, even))
    assert one.coefficients.tolist() == pytest.approx(other.coefficients.tolist())


def test_golden_a_step_of_tilted() -> None:
    # p = (1/4, 3/4), t = ln 2, F = (2, 1): weights ∝ (1/4 · 4, 3/4 · 2) = (2, 3) / 5
    rows = rows_of([[5.0], [10.0]], sizes=[1, 3])
    found = combined(Tilted(tilt=math.log(2)), rows, losses=[2.0, 1.0])
    assert found.coefficients.tolist() == pytest.approx([0.4, 0.6])
    assert found.direction.tolist() == pytest.approx([8.0])


def test_golden_two_steps_of_agnostic() -> None:
    assert_two_steps_of_agnostic()


def test_golden_those_heard_share_their_own_weight() -> None:
    risen = ascended(np.array([0.2, 0.3, 0.5]), np.array([0, 1]), np.array([1.0, 0.0]), math.log(2))
    assert risen.tolist() == pytest.approx([0.5 * 4 / 7, 0.5 * 3 / 7, 0.5])


@given(LOSSES, st.sampled_from(["mean", "ratio"]))
def test_identity_without_an_effect_of_the_loss_each_is_fedavg(losses: list[float], weighting: Any) -> None:
    count = len(losses)
    rows = rows_of(np.random.default_rng(3).normal(size=(count, 2)), sizes=np.arange(1, count + 1),
                   multiplicity=np.arange(count) % 2 + 1)  # fmt: skip
    expected = FedAvg(weighting=weighting).coefficients(rows.facts)
    for rule in (QFFL(power=0.0, weighting=weighting), Tilted(tilt=0.0, weighting=weighting)):
        assert combined(rule, rows, losses=losses).coefficients == pytest.approx(expected)
    fixed = combined(Agnostic(rate=0.0), rows, losses=losses)
    assert fixed.coefficients == pytest.approx(FedAvg(weighting="ratio").coefficients(rows.facts))
    assert fixed.memory["mixture"] == pytest.approx(rows.facts.weights)


@given(LOSSES)
def test_identity_equal_losses_tilt_nothing(losses: list[float]) -> None:
    rows = rows_of(np.ones((len(losses), 1)), sizes=np.arange(1, len(losses) + 1))
    for rule in (Tilted(tilt=3.0), Agnostic(rate=2.0)):
        assert combined(rule, rows, losses=losses[0]).coefficients == pytest.approx(rows.facts.weights)


def test_identity_the_largest_tilt_is_the_worst_client_and_the_smallest_the_best() -> None:
    assert_the_largest_tilt_is_the_worst_client_and_the_smallest_the_best()


@given(LOSSES, st.floats(-100, 100))
def test_property_a_constant_added_to_all_losses_tilts_nothing(losses: list[float], more: float) -> None:
    rows = rows_of(np.ones((len(losses), 1)))
    for rule in (Tilted(tilt=0.7), Agnostic(rate=0.7)):
        one, two = (combined(rule, rows, losses=np.array(losses) + c) for c in (0.0, more))
        assert one.coefficients == pytest.approx(two.coefficients, abs=1e-9)
        for mixture in (one.memory.get("mixture"), two.memory.get("mixture")):
            assert mixture is None or (mixture.sum() == pytest.approx(1.0) and mixture.min() >= 0.5 * LEAST_WEIGHT)


@given(LOSSES, st.floats(0.01, 100), st.floats(0, 6))
def test_property_q_ffl_does_not_overflow_and_shrinks_the_step(losses: list[float], scale: float, power: float) -> None:
    rows = rows_of(np.random.default_rng(4).normal(size=(len(losses), 3)))
    found = combined(QFFL(power=power), rows, losses=np.array(losses) * scale)
    assert np.isfinite(found.coefficients).all()
    assert 0 <= found.coefficients.sum() <= 1 + 1e-12


def test_property_weights_of_arrivals_begin_with_their_share() -> None:
    before = followed(None, np.array([0.5, 0.5, 0.0]))
    assert before.tolist() == [0.5, 0.5, 0.0]
    after = followed(before, np.array([0.25, 0.25, 0.5]))
    assert after.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert followed(after, np.array([0.0, 0.5, 0.5])).tolist() == pytest.approx([0.0, 0.5, 0.5])


def test_error_a_negative_loss_names_the_client_and_the_way_out() -> None:
    with pytest.raises(UpdateError, match=r"QFFL needs losses of 0 or more.*client 1 has -2. .* aggregate with tilted"):
        combined(QFFL(), rows_of([[1.0], [2.0]]), losses=[1.0, -2.0])


LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)
SCENES: dict[str, dict[str, Any]] = {
    "a uniform cohort": {"selection": Uniform(cohort_size=3)},
    "draws with replacement": {"selection": Weighted(cohort_size=3, replacement=True)},
    "selection by loss": {"selection": PowerOfChoice(cohort_size=3, pool_size=5)},
    "selection by gradients": {"selection": DivFL(cohort_size=3, refresh="full")},
    "a filter": {"filtering": DataSize(least=5), "selection": Uniform(cohort_size=3)},
    "no waiting": {
        "asynchrony": FedBuff(buffer_size=2, concurrency=4),
        "fleet": Fleet(clock=Deadline()),
    },
}


@every_rule
@pytest.mark.parametrize("scene", SCENES)
def test_engine_every_rule_runs_in_every_scene_alike_and_resumes(
    rule: Any, scene: str, any_engine: Callable[[], Engine]
) -> None:
    task, plan = blob_task(), Plan(local=LOCAL, rounds=4, aggregation=rule, **SCENES[scene])
    assert list(problems(plan)) == []
    whole, records = run(task, plan)
    other, _ = run(task, plan, engine=any_engine())
    assert close(other.model, whole.model)
    assert all(record.costs.probe_evaluations > 0 for record in records[1:] if len(record.answered))
    again, _ = run(task, plan, state=records[2].state)
    assert torch.equal(again.model, whole.model)
    plain, _ = run(task, replace(plan, aggregation=FedAvg()))
    assert not close(plain.model, whole.model)


def test_error_weights_by_inclusion_probability_need_one() -> None:
    plan = Plan(local=LOCAL, rounds=1, aggregation=Tilted(weighting="ht"), selection=DivFL(cohort_size=3))
    (problem,) = problems(plan)
    assert 'weighting = "ht" needs inclusion probabilities; DivFL does not know them' in problem.message
