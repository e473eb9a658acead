"""Diagnosis: every measure against its closed form on quadratics, the terms by hand, and the advice's order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.audited_runs import PROBLEM
from tests.support.tasks import PointModel, quadratic_task
from turnout import losses
from turnout.analysis.diagnosis.advice import rank_rules
from turnout.analysis.diagnosis.curvature import curvature
from turnout.analysis.diagnosis.data_measures import (
    availability_shift,
    feature_divergence,
    label_divergence,
    size_correlation,
)
from turnout.analysis.diagnosis.estimate import weighted_mean
from turnout.analysis.diagnosis.flexible import optimum_shift, reboot_radius, rounds_to_exclude, schemes
from turnout.analysis.diagnosis.heterogeneity import (
    average_drift,
    dissimilarity,
    drift_after,
    gradient_noise,
    retention,
)
from turnout.analysis.diagnosis.optimum import client_gaps, minimise
from turnout.analysis.diagnosis.participation import participation_variance
from turnout.analysis.diagnosis.prober import Prober
from turnout.analysis.diagnosis.terms import (
    DRIFT,
    MISMATCH,
    NOISE,
    OPTIMISATION,
    PARTICIPATION,
    SELECTION,
    Constants,
    error_terms,
    uniform_variance,
)
from turnout.array_types import Floats
from turnout.data.federation import from_clients
from turnout.engine import Sequential, Task
from turnout.errors import ConfigError
from turnout.losses import quadratic
from turnout.protocols import Population
from turnout.streams import Streams
from turnout.study.diagnose import diagnose_study, pilot_of

H, E = np.array([1.0, 2.0, 0.5]), np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
P = np.array([0.2, 0.3, 0.5])
OPTIMUM = (P @ E) / (P @ H)
CONSTANTS = Constants(
    rounds=10,
    start_gap=3.0,
    smoothness=2.0,
    noise=5.0,
    dissimilarity=7.0,
    participation_variance=0.3,
    step=0.4,
    lr=0.1,
    steps=4.0,
    cohort=5.0,
    gap=1.5,
    skew_bias=0.5,
    mismatch=0.25,
)


def prober_of(task: Task) -> Prober:
    return Prober.of(task, Sequential(), Streams(0), Population.of(task.federation.sizes))


@pytest.fixture(scope="module")
def prober() -> Prober:
    return prober_of(quadratic_task(H.tolist(), E.tolist(), [2, 3, 5]))


def at(point: Floats) -> torch.Tensor:
    return torch.tensor(point, dtype=torch.float64)


def test_golden_losses_and_gradients_are_those_of_the_quadratics(prober: Prober) -> None:
    point = np.array([0.7, -0.4])
    assert np.allclose(prober.losses(at(point)), 0.5 * H * (point @ point) - E @ point)
    assert np.allclose(prober.gradients(at(point)).numpy(), H[:, None] * point - E)
    loss, gradient = prober.objective(at(point))
    assert loss == pytest.approx(P @ (0.5 * H * (point @ point) - E @ point))
    assert np.allclose(gradient.numpy(), P @ (H[:, None] * point - E))


def test_convergence_the_optimum_and_every_clients_gap_are_found(prober: Prober) -> None:
    found = minimise(prober, at(np.array([3.0, 3.0])))
    assert np.allclose(found.numpy(), OPTIMUM, atol=1e-5)
    gaps = client_gaps(prober, found, H)
    exact = 0.5 * H * ((OPTIMUM - E / H[:, None]) ** 2).sum(1)  # Γ_k = (h_k/2) ‖x* − e_k/h_k‖²
    assert np.allclose(gaps.gaps, exact, atol=1e-6)
    assert (gaps.still_gaining < 1e-6).all()


def test_golden_curvature_is_the_mean_of_the_clients(prober: Prober) -> None:
    found = curvature(prober, at(np.array([1.0, 2.0])))
    assert found.largest.value == pytest.approx(P @ H)
    assert np.allclose(found.by_client, H)


def test_golden_dissimilarity_mean_and_largest(prober: Prober) -> None:
    rows = H[:, None] * OPTIMUM - E
    squares = ((rows - P @ rows) ** 2).sum(1)
    found = dissimilarity(prober, at(OPTIMUM))
    assert found.mean.value == pytest.approx(P @ squares)
    assert found.mean.error == 0  # everyone was measured
    assert found.largest == pytest.approx(squares.max())
    assert found.gradient_norm == pytest.approx(0, abs=1e-12)


def test_golden_drift_and_average_drift_at_optimum(prober: Prober) -> None:
    lr, steps = 0.1, 5
    rate = (1 - (1 - lr * H) ** steps) / (lr * steps * H)  # Δ_i / (η τ) = rate · ∇F_i
    rows = H[:, None] * OPTIMUM - E
    found = average_drift(prober, at(OPTIMUM), steps, lr)
    assert found.value == pytest.approx(np.linalg.norm((P * rate) @ rows))
    assert drift_after(prober, at(OPTIMUM), steps, lr).value == pytest.approx(P @ ((rate - 1) ** 2 * (rows**2).sum(1)))
    assert found.value > 0.01


def test_identity_no_drift_with_one_step_or_equal_curvatures(prober: Prober) -> None:
    assert average_drift(prober, at(OPTIMUM), 1, 0.1).value == pytest.approx(0, abs=1e-12)
    same = prober_of(quadratic_task([1.5] * 3, E.tolist(), [2, 3, 5]))
    optimum = (P @ E) / 1.5
    assert average_drift(same, at(optimum), 9, 0.1).value == pytest.approx(0, abs=1e-12)
    assert dissimilarity(same, at(optimum)).mean.value > 1
    assert retention(same, at(optimum), at(optimum + 5)) == pytest.approx(1)  # equal Hessians: differences stay


def test_golden_retention_by_hand(prober: Prober) -> None:
    points = np.array([[0.0, 0.0], [2.0, -1.0]])
    rows = [H[:, None] * point - E for point in points]
    one, other = (each - P @ each for each in rows)
    exact = P @ (one * other).sum(1) / np.sqrt((P @ (one**2).sum(1)) * (P @ (other**2).sum(1)))
    assert retention(prober, at(points[0]), at(points[1])) == pytest.approx(max(exact, 0))


def test_property_gradient_noise_is_that_of_sampling_without_replacement() -> None:
    rng = np.random.default_rng(0)
    samples, batch = 12, 3
    targets = rng.normal(size=(4, samples, 2))
    clients = [
        (torch.zeros(samples, 1, dtype=torch.float64), torch.tensor(np.column_stack([np.ones(samples), own])))
        for own in targets
    ]
    made = prober_of(Task(federation=from_clients(clients), module=PointModel(2), loss=losses.quadratic))
    variances = targets.var(axis=1).sum(1)
    exact = float((variances * (samples - batch) / (batch * (samples - 1))).mean())
    found = gradient_noise(made, at(np.zeros(2)), batch)
    assert found.error > 0
    assert abs(found.value - exact) < 4 * found.error
    assert gradient_noise(made, at(np.zeros(2)), None).value == 0


def study(**sections: Any) -> to.Study:
    parts: dict[str, Any] = {"local": to.local.SGD(lr=0.02, steps=4, batches="full"), **sections}
    return to.Study(
        data=PROBLEM, model=to.models.Point(dim=2, dtype="float64"), loss=quadratic, rounds=40, seeds=1, **parts
    )


def test_property_participation_variance_of_uniform_cohorts() -> None:
    even = replace(PROBLEM, num_examples=None)
    plan = replace(study(selection=to.selection.Uniform(cohort_size=2)), data=even, rounds=400)
    loaded = replace(plan, evaluate=to.Cadence(every=400)).run(progress=False).loaded
    task = quadratic_task(list(even.curvatures or ()), [list(e) for e in even.targets or ()], [1] * 6)
    made, point = prober_of(task), at(np.array([0.5, 0.5]))
    found = participation_variance(pilot_of(loaded, "study", 0), made, made.gradients(point))
    exact = uniform_variance(dissimilarity(made, point).mean.value, 2, 6)
    assert abs(found.value - exact) < 4 * found.error
    assert found.error < 0.1 * exact


def test_golden_error_terms_by_hand() -> None:
    found = error_terms(CONSTANTS)
    assert found == pytest.approx(
        {
            OPTIMISATION: 2 * 3 / (0.4 * 10),
            NOISE: 0.1 * 2 * 5 / 5 + 0.01 * 4 * 3 * 5,
            PARTICIPATION: 0.4 * 2 * 0.3,
            DRIFT: 0.01 * 4 * 4 * 3 * 7,
            SELECTION: 2 * 2 * 1.5 * 0.5,
            MISMATCH: 0.25,
        }
    )
    assert error_terms(replace(CONSTANTS, steps=1.0))[DRIFT] == 0
    assert uniform_variance(7.0, 6, 6) == 0


def test_golden_a_sample_of_clients_has_an_error_and_all_of_them_have_none() -> None:
    values, weights = np.array([1.0, 3.0]), np.array([0.5, 0.5])
    assert weighted_mean(values, weights, 2).error == 0
    assert weighted_mean(values, weights, 8).error == pytest.approx((0.75 * (0.25 + 0.25)) ** 0.5)


def test_golden_bounds_of_arrivals_and_departures() -> None:
    assert optimum_shift(2.0, 0.5, 0.1, 4.0) == pytest.approx(2 * 2 / 0.5 * 0.1 * 2)
    assert reboot_radius(0.6, 2.0, 0.1, 4.0) == pytest.approx(0.6 / (3 * 0.1 * 4))
    assert rounds_to_exclude(4.0, 25) == 10
    assert rounds_to_exclude(0.0, 25) == 0


@pytest.mark.parametrize("arrives", range(6))
def test_property_the_shift_bound_holds_on_quadratics(arrives: int) -> None:
    h, e, n = (np.array(each, dtype=float) for each in (PROBLEM.curvatures, PROBLEM.targets, PROBLEM.num_examples))
    old = np.where(np.arange(6) == arrives, 0, n)
    before, after = ((w @ e) / (w @ h) for w in (old, n))
    gap = 0.5 * h[arrives] * ((before - e[arrives] / h[arrives]) ** 2).sum()
    bound = optimum_shift(h.max(), h.min(), n[arrives] / n.sum(), gap)
    assert np.linalg.norm(before - after) <= bound


def test_golden_schemes_converge_where_their_weights_are_those_asked_for() -> None:
    fleet = to.Fleet(work=to.fleet.Fraction(fraction=(1.0, 0.25, 0.5, 1.0, 0.75, 0.25)))
    loaded = study(fleet=fleet).run(progress=False).loaded
    pilot = pilot_of(loaded, "study", 0)
    found = {scheme.name: scheme for scheme in schemes(pilot.rounds, pilot.weights.asked)}
    p, s = PROBLEM.weights, np.array([1.0, 0.25, 0.5, 1.0, 0.75, 0.25])
    assert found["C"].mismatch == pytest.approx(0)
    assert found["B"].mismatch == pytest.approx(0.5 * np.abs(p * s / (p @ s) - p).sum())
    assert found["A"].never == 4
    assert found["A"].mismatch == pytest.approx(1 - p[[0, 3]].sum())


def test_golden_label_feature_and_availability_measures() -> None:
    counts, weights = np.array([[10, 0], [0, 10]]), np.array([0.5, 0.5])
    assert label_divergence(counts, weights) == pytest.approx(0.5)
    assert label_divergence(np.array([[5, 5], [5, 5]]), weights) == 0
    shift, _ = availability_shift(counts, np.array([1.0, 0.5]), Streams(0))
    assert shift.value == pytest.approx(2 / 3 - 0.5)
    means, squares = np.array([[0.0], [2.0]]), np.array([[1.0], [5.0]])  # variance 1 within, 1 between
    assert feature_divergence(means, squares, np.array([3, 3])) == pytest.approx(0.5)
    assert size_correlation(np.array([0.1, 0.2, 0.3]), np.array([1, 2, 3])).value == pytest.approx(1)
    assert size_correlation(np.ones(3), np.array([1, 2, 3])).value == 0


@pytest.fixture(scope="module")
def uneven() -> Any:
    fleet = to.Fleet(work=to.fleet.Fraction(fraction=(1.0, 0.25, 0.5, 1.0, 0.75, 0.25)))
    return diagnose_study(study(fleet=fleet))


def test_convergence_a_whole_diagnosis_of_quadratics(uneven: Any) -> None:
    values = {measure.name: measure.estimate.value for measure in uneven.measures}
    h, e, p = np.array(PROBLEM.curvatures), np.array(PROBLEM.targets), PROBLEM.weights
    optimum = PROBLEM.optimum()
    gap = p @ (0.5 * h * ((optimum - e / h[:, None]) ** 2).sum(1))
    assert values["heterogeneity gap"] == pytest.approx(gap, rel=1e-4)
    assert values["curvature"] == pytest.approx(p @ h)
    assert values["selection skew at optimum"] == pytest.approx(np.mean(
        0.5 * h * ((optimum - e / h[:, None]) ** 2).sum(1)) / gap, rel=1e-4)  # fmt: skip
    assert values["gradient noise"] == 0
    assert values["participation variance"] == pytest.approx(0, abs=1e-12)  # everyone takes part
    assert uneven.terms[MISMATCH] > 0
    assert values["bias by local work"] == pytest.approx(values["bias by all causes"], rel=1e-6)


def test_property_fednova_and_scaffold_are_advised_against_unequal_work(uneven: Any) -> None:
    order = [rule.name for rule in uneven.advice.rules]
    assert order.index("fednova") < order.index("fedavg")
    assert order.index("scaffold") < order.index("fedavg")


def test_property_a_rule_is_never_better_without_the_term_it_removes() -> None:
    loaded = study().run(progress=False).loaded
    pilot = pilot_of(loaded, "study", 0)
    calm = replace(CONSTANTS, participation_variance=0, mismatch=0, skew_bias=0, noise=0, dissimilarity=0)
    found = rank_rules(calm, pilot, drift=0.0, retention=1.0, bias={}, extrapolation=4.0)
    assert found.rules[0].name == "fedexp"  # the optimisation term is all there is, and 4 > 0.3 / (1 − 0.9)
    assert found.settings[0].startswith("raise local.lr: up to 1/(L τ) = 0.12")
    stormy = replace(calm, participation_variance=100.0)
    best = rank_rules(stormy, pilot, drift=0.0, retention=1.0, bias={}, extrapolation=4.0)
    assert {rule.name for rule in best.rules[:3]} == {"scaffold", "fedvarp", "mifa"}


def test_error_an_unknown_arm_is_named() -> None:
    with pytest.raises(ConfigError, match=r"There is no arm 'fedagv' in the study. It has study\."):
        diagnose_study(study(), "fedagv")
