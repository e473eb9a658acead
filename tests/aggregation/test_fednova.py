"""FedNova: a case worked by hand, T9 and T10, and its fixed point on quadratics."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.aggregation_inputs import facts
from tests.support.fednova_checks import check_common_direction, check_golden, check_nobody_moved_means_no_step
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedNova, SchemeC
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import ConfigError, UpdateError
from turnout.local import SGD
from turnout.protocols import View
from turnout.selection import Uniform
from turnout.server import SGD as ServerSGD

NEVER = Cadence(every=10**9)
SOLVERS: dict[str, Any] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "proximal": {"prox_strength": 0.5},
    "decay": {"lr_decay": 0.8},
    "all": {"momentum": 0.7, "prox_strength": 0.3, "lr_decay": 0.9},
}


class Unequal(SGD):
    """Every client its own number of steps: 1, 3, 7."""

    def asked(self, clients: Ids, view: View) -> Ids:
        return np.asarray((1, 3, 7))[clients]


def test_golden_two_clients_by_hand() -> None:
    check_golden(FedNova())


def test_golden_effective_steps_counts_steps_in_place_of_work() -> None:
    two = facts([0, 1], weights=[0.5, 0.5], steps=[2, 4], work=[1.0, 3.0])
    # τ_eff = ½·2 + ½·4 = 3 and not ½·1 + ½·3 = 2; coefficients 3·½/1 and 3·½/3
    assert FedNova(effective="steps").coefficients(two) == pytest.approx([1.5, 0.5])
    assert FedNova().coefficients(two) == pytest.approx([1.0, 1 / 3])


def test_golden_ht_weighs_by_the_data_over_the_chance_of_being_asked() -> None:
    # two of four asked, p = (0.1, 0.3), π = ½: w = (0.2, 0.6); τ_eff = 0.2·1 + 0.6·4 = 2.6
    two = facts([0, 1], weights=[0.1, 0.3], steps=[1, 4], prob=[0.5, 0.5], total=4)
    assert FedNova(weighting="ht").coefficients(two) == pytest.approx([2.6 * 0.2, 2.6 * 0.6 / 4])


def test_contract_nobody_moved_means_no_step() -> None:
    check_nobody_moved_means_no_step(FedNova())


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.1, 50)), min_size=1, max_size=6))
def test_property_a_common_direction_is_followed_as_far_as_the_mean_work(pairs: list[tuple[float, float]]) -> None:
    weights, work = np.array(pairs).T
    check_common_direction(FedNova(), weights, work)


@given(st.integers(1, 50), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_identity_equal_work_is_fedavg(steps: int, raw: list[float]) -> None:
    equal = facts(np.arange(len(raw)), weights=np.array(raw) / sum(raw), steps=np.full(len(raw), steps))
    for weighting in ("ratio", "mean"):
        theirs = FedAvg(weighting=weighting).coefficients(equal)
        assert np.allclose(FedNova(weighting=weighting).coefficients(equal), theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_identity_equal_steps_are_fedavg_for_any_solver(solver: str, any_engine: Callable[[], Engine]) -> None:
    task = blob_task(5)
    local = SGD(lr=0.1, batch_size=4, steps=5, **SOLVERS[solver])
    plan = Plan(local=local, rounds=3, selection=Uniform(cohort_size=3), evaluate=NEVER)
    average, _ = run(task, plan, engine=any_engine())
    normalised, _ = run(task, replace(plan, aggregation=FedNova()), engine=any_engine())
    assert torch.allclose(average.model, normalised.model, rtol=0, atol=1e-12)
    assert not torch.allclose(average.model, task.layout.flatten(task.module))


def test_identity_scheme_c_is_fednova_with_e_in_place_of_the_mean_work() -> None:
    p, done = np.array([0.2, 0.3, 0.5]), np.array([1, 4, 10])
    some = facts([0, 1, 2], weights=p, steps=done, asked=[10, 10, 10])
    effective = p @ done
    assert SchemeC().coefficients(some) == pytest.approx(FedNova().coefficients(some) * 10 / effective, abs=1e-12)


def closed_form(
    steps: int, lr: float, momentum: float = 0.0, prox_strength: float = 0.0, lr_decay: float = 1.0
) -> float:
    """‖a‖₁ by the closed forms, for one feature at a time."""
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    if prox_strength:
        return (1 - (1 - lr * prox_strength) ** steps) / (lr * prox_strength)
    if lr_decay < 1:
        return (1 - lr_decay**steps) / (1 - lr_decay)
    return steps


@pytest.mark.parametrize("solver", ["plain", "momentum", "proximal", "decay"])
def test_identity_constant_gradients_move_the_model_by_the_mean_work(
    solver: str, any_engine: Callable[[], Engine]
) -> None:
    # h = 0: every gradient is −e_i, so Δ_i = −η ‖a_i‖₁ e_i and the step is exactly η τ_eff Σ p e
    lr, e, sizes = 0.1, np.array([[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]]), np.array([2, 3, 5])
    task = quadratic_task([0.0, 0.0, 0.0], e.tolist(), sizes.tolist())
    settings = SOLVERS[solver]
    plan = Plan(
        local=Unequal(lr=lr, steps=1, batches="full", **settings), rounds=1, aggregation=FedNova(), evaluate=NEVER
    )
    final, records = run(task, plan, engine=any_engine())
    p = sizes / sizes.sum()
    work = np.array([closed_form(s, lr, **settings) for s in (1, 3, 7)])
    assert final.model.numpy() == pytest.approx(lr * (p @ work) * (p @ e), abs=1e-10)
    assert records[-1].coefficients == pytest.approx((p @ work) * p / work, abs=1e-10)


H, E, SIZES = np.array([1.0, 2.0, 0.5]), np.array([[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]]), np.array([2, 3, 5])
P = SIZES / SIZES.sum()
OPTIMUM = P @ E / (P @ H)


def limit_of(aggregation: Any, lr: float) -> Any:
    """Where a rule ends on three quadratics with 1, 3 and 7 steps; a server rate of its own only makes it quicker."""
    plan = Plan(
        local=Unequal(lr=lr, steps=1, batches="full"),
        rounds=60,
        aggregation=aggregation,
        server=ServerSGD(lr=0.16 / lr),
        evaluate=NEVER,
    )
    return run(quadratic_task(H.tolist(), E.tolist(), SIZES.tolist()), plan)[0].model.numpy()


def test_convergence_reaches_the_fixed_point_of_quadratics() -> None:
    lr, steps = 0.2, np.array([1, 3, 7])
    pull = P * (1 - (1 - lr * H) ** steps) / steps
    assert limit_of(FedNova(), lr) == pytest.approx(pull @ (E / H[:, None]) / pull.sum(), abs=1e-8)


def test_convergence_the_bias_vanishes_with_the_rate_and_fedavgs_does_not() -> None:
    far, near = (np.linalg.norm(limit_of(FedNova(), lr) - OPTIMUM) for lr in (0.002, 0.001))
    assert near == pytest.approx(far / 2, rel=0.02)  # first order in the rate
    assert near < 0.01
    mismatched = P * [1, 3, 7] / (P @ [1, 3, 7])  # FedAvg tends to the minimiser of Σ p τ F
    wrong = mismatched @ E / (mismatched @ H)
    assert limit_of(FedAvg(), 0.001) == pytest.approx(wrong, abs=0.01)
    assert np.linalg.norm(wrong - OPTIMUM) > 0.5


def test_error_an_idle_client_is_named() -> None:
    with pytest.raises(UpdateError, match=r"FedNova needs local_work > 0; client 4 did none\. .*SchemeC"):
        FedNova().coefficients(facts([2, 4], steps=[3, 0]))


def test_error_ht_without_inclusion_probabilities_says_what_to_do() -> None:
    with pytest.raises(UpdateError, match=r'weighting = "ht" needs inclusion probabilities'):
        FedNova(weighting="ht").coefficients(facts([0, 1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(SGD):
    """A solver that says it preconditions its steps."""

    correction: str = "none"

    @property
    def preconditioned(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("correction", "message"),
    [
        ("none", r"FedNova on aggregation: .*preconditioner that Adaptive applies.*Set local\.correction = \"joint\""),
        ("local", r"already divides each update by its work.*Set aggregation.use = .fedavg"),
        ("joint", r"already divides each update by its work.*Aggregate with Joint"),
    ],
)
def test_error_adaptive_local_solvers_are_refused_with_the_reason(correction: str, message: str) -> None:
    plan = Plan(local=Adaptive(lr=0.1, steps=1, correction=correction), rounds=1, aggregation=FedNova())
    with pytest.raises(ConfigError, match=message):
        run(blob_task(2), plan)
    assert not list(problems(replace(plan, local=SGD(lr=0.1, steps=1))))
