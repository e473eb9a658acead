"""The diagnosis of a planned run: what was measured, the error terms at these numbers, and the advice."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from turnout.analysis.diagnosis.advice import Advice, Estimates, rank_rules
from turnout.analysis.diagnosis.curvature import curvature
from turnout.analysis.diagnosis.data_measures import data_measures
from turnout.analysis.diagnosis.estimate import Estimate, Measure, weighted_mean
from turnout.analysis.diagnosis.flexible import Scheme, optimum_shift, reboot_radius, rounds_to_exclude, schemes
from turnout.analysis.diagnosis.heterogeneity import (
    MOST_STEPS,
    Dissimilarity,
    average_drift,
    dissimilarity,
    drift_curve,
    extrapolation,
    gradient_noise,
    retention,
    square_norms,
)
from turnout.analysis.diagnosis.optimum import Gaps, client_gaps, minimise
from turnout.analysis.diagnosis.participation import Pilot, bias_by_cause, participation_variance
from turnout.analysis.diagnosis.prober import Prober
from turnout.analysis.diagnosis.rehearsal import Rehearsal
from turnout.analysis.diagnosis.terms import Constants, error_terms
from turnout.analysis.skew import skew
from turnout.array_types import Floats
from turnout.protocols import Population

NOTHING = 1e-20  # a squared bias below this is rounding
START, LATER, OPTIMUM = "start", "after the pilot", "optimum"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Diagnosis:
    """Everything that a diagnosis found."""

    arm: str
    measures: tuple[Measure, ...]
    terms: dict[str, float]
    advice: Advice
    schemes: tuple[Scheme, ...]
    turnover: dict[str, float]
    constants: Constants
    clients_measured: int
    clients: int
    pilot_rounds: int
    error_name: str  # what the rehearsal measures: "error" is 1 − accuracy, or "loss"
    rehearsed_rounds: int  # of all rules and seeds of the rehearsal together
    study_rounds: int  # that the same rules would take with all rounds and seeds of the study

    @property
    def dominant(self) -> str:
        """The largest error term."""
        return max(self.terms, key=lambda name: self.terms[name])

    def as_dict(self) -> dict[str, Any]:
        """Return every number as plain values."""
        return {
            "arm": self.arm,
            "clients": self.clients,
            "clients_measured": self.clients_measured,
            "pilot_rounds": self.pilot_rounds,
            "error_name": self.error_name,
            "rehearsed_rounds": self.rehearsed_rounds,
            "study_rounds": self.study_rounds,
            "measures": [
                {"name": m.name, "symbol": m.symbol, "meaning": m.meaning, **asdict(m.estimate)} for m in self.measures
            ],
            "terms": self.terms,
            "dominant": self.dominant,
            "rules": [asdict(rule) for rule in self.advice.rules],
            "lead": None if self.advice.lead is None else asdict(self.advice.lead),
            "left_out": self.advice.left_out,
            "settings": list(self.advice.settings),
            "schemes": [asdict(scheme) for scheme in self.schemes],
            "turnover": self.turnover,
            "constants": asdict(self.constants),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planned:
    """What is to be diagnosed."""

    arm: str
    prober: Prober
    population: Population
    start: Tensor  # x⁰
    later: Tensor  # the model after the pilot
    pilot: Pilot
    rehearsal: Rehearsal
    rounds: int  # T
    seeds: int  # of the study
    batch_size: int | None
    # (model, losses) → each client's expected share of the cohort there; None: as in the pilot
    shares_at: Callable[[Tensor, Floats], Floats | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    """What was measured."""

    optimum: Tensor
    differ: dict[str, Dissimilarity]  # by point
    losses: dict[str, Floats]  # by point, of each measured client
    noise: Estimate
    smoothness: Estimate  # L
    gaps: Gaps
    drifts: dict[tuple[int, float], Estimate]
    average_drift: Estimate  # at x*
    drift_later: float  # of the mean update, at the pilot's model
    kept: float  # how much of the difference between clients the pilot left
    variance: Estimate
    bias: dict[str, Estimate]
    skews: tuple[float, float]  # ρ̄ and ρ̃


def diagnose(planned: Planned) -> Diagnosis:
    """Measure a federation, model and fleet, evaluate the error terms, and rank the rules."""
    prober, pilot = planned.prober, planned.pilot
    found = _measure(planned)
    constants = _constants(planned, found)
    growth = _growth(planned, found)
    advice = rank_rules(
        Estimates(
            constants=constants,
            clients=pilot.num_clients,
            drift=max(found.average_drift.value, found.drift_later),
            retention=found.kept ** (1 / pilot.weights.rounds),
            bias={cause: value.value for cause, value in found.bias.items()},
            extrapolation=_extrapolation(planned),
        ),
        planned.rehearsal,
    )
    return Diagnosis(
        arm=planned.arm,
        measures=(
            *_gradient_measures(found),
            *_other_measures(planned, found),
            *data_measures(prober, planned.population, pilot.weights),
        ),
        terms=error_terms(constants),
        advice=advice,
        schemes=schemes(pilot.rounds, pilot.weights.asked),
        turnover=_turnover(planned, found, constants, growth),
        constants=constants,
        clients_measured=len(prober.clients),
        clients=prober.num_clients,
        pilot_rounds=pilot.weights.rounds,
        error_name=planned.rehearsal.error_name,
        rehearsed_rounds=planned.rehearsal.spent_rounds,
        study_rounds=planned.rounds * planned.seeds * len(planned.rehearsal.errors),
    )


def _measure(planned: Planned) -> _Found:
    prober, pilot = planned.prober, planned.pilot
    optimum = minimise(prober, planned.start)
    points = {START: planned.start, LATER: planned.later, OPTIMUM: optimum}
    losses = {name: prober.losses(model) for name, model in points.items()}
    bent = [curvature(prober, model) for model in (planned.start, optimum)]
    gaps = client_gaps(prober, optimum, np.maximum(bent[0].by_client, bent[1].by_client))
    shares = {name: planned.shares_at(model, losses[name]) for name, model in points.items()}
    return _Found(
        optimum=optimum,
        differ={name: dissimilarity(prober, model) for name, model in points.items()},
        losses=losses,
        noise=gradient_noise(prober, planned.later, planned.batch_size),
        smoothness=max((each.largest for each in bent), key=lambda each: each.value),
        gaps=gaps,
        drifts=drift_curve(prober, planned.later, pilot.whole_steps, pilot.mean_lr),
        average_drift=average_drift(prober, optimum, pilot.whole_steps, pilot.mean_lr),
        drift_later=average_drift(prober, planned.later, pilot.whole_steps, pilot.mean_lr).value,
        kept=retention(prober, planned.start, planned.later),
        variance=participation_variance(pilot, prober, prober.gradients(planned.later)),
        bias=bias_by_cause(pilot, prober, prober.gradients(planned.later)),
        skews=_skews(planned, shares, losses, losses[OPTIMUM] - gaps.gaps),
    )


def _constants(planned: Planned, found: _Found) -> Constants:
    pilot, (low, high) = planned.pilot, found.skews
    return Constants(
        rounds=planned.rounds,
        start_gap=max(_start_gap(planned, found), 0.0),
        smoothness=found.smoothness.value,
        noise=found.noise.value,
        dissimilarity=found.differ[LATER].mean.value,
        participation_variance=0.0 if math.isnan(found.variance.value) else found.variance.value,
        step=pilot.mean_step,
        lr=pilot.mean_lr,
        steps=pilot.mean_steps,
        cohort=pilot.mean_cohort,
        gap=_gap(planned, found).value,
        skew_bias=high / low - 1 if low > 0 else 0.0,
        mismatch=found.bias["all causes"].value,
    )


def _start_gap(planned: Planned, found: _Found) -> float:
    """Return F(x⁰) − F(x*)."""
    return float(planned.prober.weights @ (found.losses[START] - found.losses[OPTIMUM]))


def _growth(planned: Planned, found: _Found) -> float:
    """Return 2 (F(x⁰) − F(x*)) / ‖x⁰ − x*‖², which is μ or more where F is strongly convex; NaN if x⁰ is x*."""
    square = float(square_norms((planned.start - found.optimum)[None])[0])
    return 2 * _start_gap(planned, found) / square if square > 0 else math.nan


def _gap(planned: Planned, found: _Found) -> Estimate:
    """Return Γ; its error has what the descent of clients still gained."""
    prober = planned.prober
    mean = weighted_mean(found.gaps.gaps, prober.weights, prober.num_clients)
    return Estimate(mean.value, math.hypot(mean.error, float(prober.weights @ found.gaps.still_gaining)))


def _other_measures(planned: Planned, found: _Found) -> list[Measure]:
    gaps, (low, high), steps = found.gaps, found.skews, planned.pilot.whole_steps
    worst = int(gaps.gaps.argmax())
    largest = Estimate(float(gaps.gaps[worst]), float(gaps.still_gaining[worst]))
    growth = Estimate(_growth(planned, found))
    return [
        Measure("gradient noise", "σ²", found.noise, "variance of a mini-batch gradient"),
        Measure("curvature", "L", found.smoothness, "largest eigenvalue of the Hessian of F"),
        Measure("growth", "μ", growth, "2 (F(x⁰) − F(x*)) / ‖x⁰ − x*‖²"),
        Measure("heterogeneity gap", "Γ", _gap(planned, found), "Σ p_k (F_k(x*) − F_k*)"),
        Measure("largest client gap", "max Γ_k", largest, "F_k(x*) − F_k*"),
        Measure("average drift at optimum", "ADO", found.average_drift, f"‖Σ p_i Δ_i / (η τ)‖ at x*, τ = {steps}"),
        *(
            Measure(f"drift, τ = {count}, η = {rate:.3g}", "drift", value, "Σ p_i ‖Δ_i / (η τ) − ∇F_i‖²")
            for (count, rate), value in found.drifts.items()
        ),
        Measure("drift of the mean update", "‖G − ∇F‖", Estimate(found.drift_later), "after the pilot; ADO is at x*"),
        Measure("memory over the pilot", "cos", Estimate(found.kept), "how much of ∇F_i − ∇F the pilot left"),
        Measure("participation variance", "Var_S", found.variance, "variance of the step over the pilot's cohorts"),
        Measure("selection skew, lowest", "ρ̄", Estimate(low), "1 for unbiased selection"),
        Measure("selection skew at optimum", "ρ̃", Estimate(high), "the same at x*"),
        *(
            Measure(f"bias by {cause}", "b²", value, "‖Σ_i (q_i − q'_i) ∇F_i‖² after the pilot")
            for cause, value in found.bias.items()
            if value.value > NOTHING
        ),
    ]


def _gradient_measures(found: _Found) -> list[Measure]:
    measures = []
    for place, value in found.differ.items():
        largest = Estimate(value.largest)
        measures.append(Measure(f"gradient dissimilarity, {place}", "σ_g²", value.mean, "Σ p_i ‖∇F_i − ∇F‖²"))
        measures.append(Measure(f"largest dissimilarity, {place}", "max σ_g²", largest, "max_i ‖∇F_i − ∇F‖²"))
    return measures


def _skews(
    planned: Planned, shares: dict[str, Floats | None], losses: dict[str, Floats], minima: Floats
) -> tuple[float, float]:
    """Return ρ̄, the lowest ρ over the points, and ρ̃, that at the optimum; 1 where nothing can be said."""
    prober = planned.prober
    pilot = np.sum([facts.drawn for facts in planned.pilot.rounds], axis=0)
    ratios = {}
    for point, values in losses.items():
        expected = shares[point]
        own = (pilot if expected is None else expected)[prober.clients]
        if own.sum() > 0:
            ratios[point] = float(skew(own / own.sum(), values, minima, prober.weights))
    known = {point: ratio for point, ratio in ratios.items() if math.isfinite(ratio)}
    return min(known.values(), default=1.0), known.get(OPTIMUM, 1.0)


def _extrapolation(planned: Planned) -> float:
    """Return FedExP's η_g at the pilot's model, mean over the pilot's cohorts."""
    prober, pilot = planned.prober, planned.pilot
    rows = prober.updates(planned.later, min(pilot.whole_steps, MOST_STEPS), pilot.mean_lr)
    cohorts = [(facts.used * facts.counted)[prober.clients] * prober.weights for facts in pilot.rounds]
    found = [extrapolation(shares / shares.sum(), rows) for shares in cohorts if shares.sum() > 0]
    return float(np.mean(found)) if found else 1.0


def _turnover(planned: Planned, found: _Found, constants: Constants, growth: float) -> dict[str, float]:
    """Return Ruan's bounds for the client whose arrival or departure would move the optimum most."""
    if not growth > 0:
        return {}
    weights, gaps = planned.prober.weights, found.gaps.gaps
    shifts = [
        optimum_shift(constants.smoothness, growth, float(p), float(g)) for p, g in zip(weights, gaps, strict=True)
    ]
    worst = int(np.argmax(shifts))
    share, gap, halfway = float(weights[worst]), float(gaps[worst]), planned.rounds // 2
    bound = max(found.differ[START].gradient_norm, constants.smoothness)  # W
    return {
        "client": float(planned.prober.clients[worst]),
        "shift": shifts[worst],
        "shift_median": float(np.median(shifts)),
        "reboot_radius": reboot_radius(share * gap, shifts[worst], share, bound) if share > 0 else math.nan,
        "departs_at": float(halfway),
        "rounds_to_exclude": float(rounds_to_exclude(gap, halfway)),
    }
