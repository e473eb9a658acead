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
from turnout.analysis.audit.weights import RoundFacts
from turnout.analysis.diagnosis.advice import Estimates, rank_rules, rule_terms
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
    drift_curve,
    extrapolation,
    gradient_noise,
    retention,
)
from turnout.analysis.diagnosis.optimum import client_gaps, minimise
from turnout.analysis.diagnosis.participation import bias_by_cause, participation_variance
from turnout.analysis.diagnosis.prober import Prober
from turnout.analysis.diagnosis.rehearsal import Rehearsal
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
from turnout.losses import quadratic, squared_error
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


def test_golden_curvature_is_that_of_the_steepest_direction() -> None:
    inputs = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)  # H = c · diag(9, 1), c by the loss
    module = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    federation = from_clients([(inputs, torch.zeros(2, 1, dtype=torch.float64))] * 2)
    found = curvature(prober_of(Task(federation=federation, module=module, loss=squared_error)), at(np.zeros(2)))
    each = squared_error(inputs @ at(np.array([1.0, 0.0]))[:, None], torch.zeros(2, 1, dtype=torch.float64))
    assert found.largest.value == pytest.approx(2 * float(each.mean()))  # F(v) = ½ vᵀHv along the steepest v
    assert np.allclose(found.by_client, found.largest.value)


def test_golden_dissimilarity_mean_and_largest(prober: Prober) -> None:
    point = np.array([0.7, -0.4])  # the mean gradient is not zero there
    rows = H[:, None] * point - E
    squares = ((rows - P @ rows) ** 2).sum(1)
    found = dissimilarity(prober, at(point))
    assert found.mean.value == pytest.approx(P @ squares)
    assert found.mean.error == 0  # everyone was measured
    assert found.largest == pytest.approx(squares.max())
    assert found.gradient_norm == pytest.approx(np.linalg.norm(P @ rows))
    assert dissimilarity(prober, at(OPTIMUM)).gradient_norm == pytest.approx(0, abs=1e-12)


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


def test_golden_schemes_by_hand() -> None:
    everyone, steps = np.ones(3, dtype=bool), np.array([8.0, 4.0, 4.0])
    unused = {"work": steps, "fresh": steps, "total": steps}
    who = dict.fromkeys(("counted", "present", "up", "kept"), everyone)
    last = np.array([0.0, 0.0, 1.0])
    rounds = [  # client 2 does half of its work, then it alone does all
        RoundFacts(
            drawn=np.ones(3), used=np.ones(3), asked_steps=steps, local_steps=np.array([8.0, 4, 2]), **who, **unused
        ),
        RoundFacts(drawn=np.ones(3), used=last, asked_steps=steps, local_steps=steps * last, **who, **unused),
    ]
    found = {scheme.name: scheme for scheme in schemes(rounds, np.array([0.25, 0.25, 0.5]))}
    # A: (¼·3/2, ¼·3/2, ½·3); B: (¼, ¼, ½·½ + ½); C: (¼, ¼, ½ + ½)
    assert found["A"].mismatch == pytest.approx(1 / 6)
    assert found["B"].mismatch == pytest.approx(0.1)
    assert found["C"].mismatch == pytest.approx(1 / 6)


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


def test_golden_the_constants_of_a_whole_diagnosis(uneven: Any) -> None:
    values = {measure.name: measure.estimate.value for measure in uneven.measures}
    h, e, p = np.array(PROBLEM.curvatures), np.array(PROBLEM.targets), PROBLEM.weights
    at, optimum = uneven.constants, PROBLEM.optimum()
    assert (at.rounds, at.steps, at.cohort) == (40, 4, 6)
    assert at.lr == pytest.approx(0.02)
    assert at.step == pytest.approx(0.02 * p @ [4, 1, 2, 4, 3, 1])  # Σ p_i η τ_i of the steps that were done
    assert at.start_gap == pytest.approx(0.5 * (p @ h) * optimum @ optimum, rel=1e-6)  # from x⁰ = 0
    assert values["growth"] == pytest.approx(p @ h, rel=1e-6)
    ratio = values["selection skew at optimum"] / values["selection skew, lowest"]
    assert at.skew_bias == pytest.approx(ratio - 1)
    drift = max(values["drift of the mean update"], values["average drift at optimum"])
    fedavg = next(rule for rule in uneven.advice.rules if rule.name == "fedavg")
    assert fedavg.terms[DRIFT] == pytest.approx(drift**2)
    gaps = 0.5 * h * ((optimum - e / h[:, None]) ** 2).sum(1)
    shifts = [optimum_shift(p @ h, p @ h, *pair) for pair in zip(p, gaps, strict=True)]
    worst = int(np.argmax(shifts))
    bound = max(float(np.linalg.norm(p @ e)), p @ h)  # W: ‖∇F(0)‖ or L
    assert uneven.turnover == pytest.approx(
        {
            "client": worst,
            "shift": shifts[worst],
            "shift_median": np.median(shifts),
            "reboot_radius": gaps[worst] / ((shifts[worst] + 1) * bound),
            "departs_at": 20,
            "rounds_to_exclude": np.ceil((20 * gaps[worst]) ** 0.5),
        },
        rel=1e-4,
    )


def test_golden_lost_updates_are_not_in_the_cohort() -> None:
    fleet = to.Fleet(work=to.fleet.Fraction(fraction=(1.0, 0.0, 1.0, 1.0, 0.0, 1.0)))
    pilot = pilot_of(study(fleet=fleet).run(progress=False).loaded, "study", 0)
    assert (pilot.mean_cohort, pilot.mean_steps) == (4, 4)


def test_golden_bias_of_unequal_weights_is_less_what_chance_gives() -> None:
    plan = study(selection=to.selection.Uniform(cohort_size=2))
    pilot = pilot_of(plan.run(progress=False).loaded, "study", 0)
    sizes = [1, 2, 3, 1, 2, 3]
    made = prober_of(quadratic_task(list(PROBLEM.curvatures or ()), [list(e) for e in PROBLEM.targets or ()], sizes))
    rows = made.gradients(at(np.array([0.5, 0.5])))
    found = bias_by_cause(pilot, made, rows)
    gaps, errors = np.diff(pilot.weights.stages, axis=0), pilot.weights.standard_errors
    noise = errors**2 @ (rows.numpy() ** 2).sum(1)
    assert found["selection"].value == pytest.approx((((gaps[3]) @ rows.numpy()) ** 2).sum())
    whole = ((gaps.sum(0) @ rows.numpy()) ** 2).sum()
    assert found["all causes"].value == pytest.approx(max(whole - noise, 0))
    assert found["all causes"].error == pytest.approx(noise)
    assert noise > 0
    cohorts = [facts.fresh / facts.fresh.sum() for facts in pilot.rounds]
    steps = np.array(cohorts) @ rows.numpy()
    assert participation_variance(pilot, made, rows).value == pytest.approx(steps.var(axis=0, ddof=1).sum())


def test_golden_extrapolation_by_hand() -> None:
    rows, shares = torch.tensor([[3.0, 0.0], [-1.0, 2.0]]), np.array([0.5, 0.5])
    assert extrapolation(shares, rows) == pytest.approx((0.5 * 9 + 0.5 * 5) / (2 * 2))
    assert extrapolation(shares, torch.ones(2, 2)) == 1  # equal updates: FedAvg
    assert extrapolation(shares, torch.zeros(2, 2)) == 1


def test_golden_drift_curve_has_a_tenth_of_the_rate(prober: Prober) -> None:
    point = at(np.array([1.0, 2.0]))
    found = drift_curve(prober, point, 6, 0.1)
    assert set(found) == {(steps, rate) for steps in (1, 4, 6) for rate in (0.1, 0.1 / 10)}
    assert found[6, 0.1].value == drift_after(prober, point, 6, 0.1).value
    assert found[6, 0.01].value < 0.05 * found[6, 0.1].value


def test_golden_clients_that_were_not_measured_give_an_error(prober: Prober) -> None:
    half = replace(prober, num_clients=6)
    lr, steps = 0.1, 5
    rows = ((1 - (1 - lr * H) ** steps) / (lr * steps * H) - 1)[:, None] * (H[:, None] * OPTIMUM - E)
    spread = P**2 @ ((rows - P @ rows) ** 2).sum(1)
    assert average_drift(half, at(OPTIMUM), steps, lr).error == pytest.approx((0.5 * spread) ** 0.5)
    assert average_drift(prober, at(OPTIMUM), steps, lr).error == 0


def test_golden_a_flat_client_has_a_step_all_the_same() -> None:
    flat = prober_of(quadratic_task([1.0, 1e-6, 1.0], E.tolist(), [2, 3, 5]))
    found = curvature(flat, at(np.array([1.0, 2.0])))
    assert found.by_client[1] == pytest.approx(found.largest.value / 10)


def test_property_the_rules_that_correct_unequal_work_are_ranked_before_fedavg(uneven: Any) -> None:
    order = [rule.name for rule in uneven.advice.rules]
    assert order.index("fednova") < order.index("fedavg")
    assert order.index("scaffold") < order.index("fedavg")
    terms = {rule.name: rule.terms for rule in uneven.advice.rules}
    assert terms["fednova"][MISMATCH] < 0.01 * terms["fedavg"][MISMATCH]


ESTIMATES = Estimates(
    constants=CONSTANTS,
    clients=20,
    drift=0.6,
    retention=0.9,
    bias={"local work": 0.1, "availability": 0.05, "selection": 0.02},
    extrapolation=4.0,
)


def test_golden_terms_of_each_rule_by_hand() -> None:
    base = error_terms(CONSTANTS) | {DRIFT: 0.36}
    seen = 1 - 4 / 10  # N / K = 4 rounds of 10
    stale = 1 - seen * 0.9**4
    pull = 1 + 0.1 * 0.1 * 4
    changed = {
        "fedavg": {},
        "fedprox": {DRIFT: 0.36 / pull**2, OPTIMISATION: base[OPTIMISATION] * pull},
        "fednova": {MISMATCH: 0.15},
        "scaffold": {PARTICIPATION: 0.24 * stale**2, DRIFT: 0.36 * stale**2, MISMATCH: 0.25 * stale},
        "fedvarp": {PARTICIPATION: 0.24 * stale**2},
        "mifa": {PARTICIPATION: 0.24 * stale**2, MISMATCH: 0.25 - (1 - stale) * 0.07 + 7 * 0.4**2},
        "fedexp": {OPTIMISATION: base[OPTIMISATION] / 4, NOISE: base[NOISE] * 4, PARTICIPATION: 0.24 * 4},
        "fedavgm": {OPTIMISATION: base[OPTIMISATION] / 3, NOISE: base[NOISE] * 3, PARTICIPATION: 0.24 * 3},
    }
    for rule, terms in rule_terms(ESTIMATES).items():
        assert terms == pytest.approx(base | changed[rule]), rule


def test_golden_rules_are_in_the_order_of_the_rehearsal_and_the_first_one_has_a_lead() -> None:
    errors: dict[str, Floats] = {"fedavg": np.array([[3.0], [5.0]]), "mifa": np.array([[2.0], [1.0]])}
    rehearsal = Rehearsal(rounds=(6,), error_name="loss", errors=errors, left_out={"scaffold": "it needs a server"})
    found = rank_rules(ESTIMATES, rehearsal)
    assert [rule.name for rule in found.rules] == ["mifa", "fedavg"]
    assert found.lead is not None
    assert [found.lead.value, found.lead.error] == pytest.approx([2.5, 1.5])  # gaps of 1 and 4
    assert found.left_out == {"scaffold": "it needs a server"}
    assert found.rules[1].bound == pytest.approx(sum(rule_terms(ESTIMATES)["fedavg"].values()))


def test_golden_the_setting_for_the_largest_term() -> None:
    rehearsal = Rehearsal(rounds=(1,), error_name="loss", errors={}, left_out={})
    calm = replace(CONSTANTS, participation_variance=0, mismatch=0, skew_bias=0, noise=0, dissimilarity=0)
    found = rank_rules(replace(ESTIMATES, constants=calm), rehearsal)
    assert found.settings[0].startswith("raise local.lr: up to 1/(L τ) = 0.12")


def test_error_an_unknown_arm_is_named() -> None:
    with pytest.raises(ConfigError, match=r"There is no arm 'fedagv' in the study. It has study\."):
        diagnose_study(study(), "fedagv")
