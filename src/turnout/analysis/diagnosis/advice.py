"""The advice: rules in the order that the rehearsal predicts, what the bound leaves with each, and a setting to change.

The bound of a rule is that of FedAvg with some terms changed; it explains, and has no say in the order. s is the
speed-up of the server step. Stored updates are N / K rounds old on average, and there for v = max(0, 1 − N / (K T)) of
the run: of what they could remove, the share e = v c^{N/K} goes, where c is the measured share of the differences
between clients that one round leaves as they were.

    FedAvg     all terms
    FedProx    client drift / (1 + μ_prox η τ)², optimisation · (1 + μ_prox η τ)
    FedNova    without the mismatch by local work
    SCAFFOLD   client drift and participation · (1 − e)², mismatch · (1 − e)
    FedVARP    participation · (1 − e)²
    MIFA       participation · (1 − e)², mismatch by availability and selection · (1 − e); σ_g² (1 − v)² more
    FedExP     s: measured from the spread of local updates
    FedAvgM    s = η_g / (1 − β)

With a speed-up, the optimisation term is divided by s, and noise and participation are multiplied by it. Client drift
is the measured drift of the mean update, squared: the bound η² L² τ (τ − 1) σ_g² is far above it on real tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.analysis.diagnosis.estimate import Estimate
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
)

PROX_STRENGTH = 0.1  # μ of FedProx
SERVER_LR, SERVER_MOMENTUM = 0.3, 0.9  # of FedAvgM
MOST_SPEED_UP = 10.0  # a larger one is not believed
REASONS = {
    "fedavg": "the plain average, without any correction",
    "fedprox": "a proximal term holds clients near the model",
    "fednova": "clients that do more local work count no more than others",
    "scaffold": "control variates remove client drift and the difference between cohorts",
    "fedvarp": "stored updates stand in for clients that are not in the cohort",
    "mifa": "the last update of every client counts, whoever is away",
    "fedexp": "the server goes further where the updates of clients differ",
    "fedavgm": "server momentum adds up what successive rounds agree on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRule:
    """One rule: what its rehearsal came to, what is predicted from it, and what the bound leaves with the rule."""

    name: str  # as in `turnout ls algorithms`
    predicted: float  # error after all rounds
    seeds: int  # of its rehearsal
    rehearsed: Estimate  # error after the rehearsal, mean over them
    gain: Estimate  # by how much it is lower than that of FedAvg
    bound: float
    terms: dict[str, float]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Rules in order, best first; rules that do not go with the arm; and settings to change."""

    rules: tuple[RankedRule, ...]
    lead: Estimate | None  # by how much the error of the first is below that of the second; None: there is no second
    left_out: dict[str, str]
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What the bounds of the rules are evaluated at."""

    constants: Constants
    clients: int  # N
    drift: float  # of the mean update
    retention: float  # c: the share of the differences between clients that one round leaves as they were
    bias: Mapping[str, float]  # squared bias of the gradient, by cause of the audit
    extrapolation: float  # FedExP's server learning rate, as measured


def rank_rules(at: Estimates, rehearsal: Rehearsal) -> Advice:
    """Return the rules that were rehearsed, the one with the lowest predicted error first."""
    terms, rounds = rule_terms(at), at.constants.rounds
    rules = [
        RankedRule(
            name=name,
            predicted=rehearsal.predicted(name, rounds),
            seeds=len(rehearsal.errors[name]),
            rehearsed=rehearsal.error(name),
            gain=rehearsal.gain(name),
            bound=sum(terms[name].values()),
            terms=terms[name],
            reason=REASONS[name],
        )
        for name in rehearsal.ranked(rounds)
    ]
    return Advice(
        rules=tuple(rules),
        lead=rehearsal.gain(rules[0].name, over=rules[1].name) if len(rules) > 1 else None,
        left_out=dict(rehearsal.left_out),
        settings=_settings(error_terms(at.constants), at.constants),
    )


def rule_terms(at: Estimates) -> dict[str, dict[str, float]]:
    """Return the terms of the bound of each rule."""
    base = error_terms(at.constants) | {DRIFT: at.drift**2}
    rarity = at.clients / max(at.constants.cohort, 1e-9)  # N / K
    seen = max(0.0, 1 - rarity / at.constants.rounds)  # v
    stale = 1 - seen * at.retention**rarity  # 1 − e
    pull = 1 + PROX_STRENGTH * at.constants.lr * at.constants.steps
    work, away = at.bias.get("local work", 0.0), at.bias.get("availability", 0.0) + at.bias.get("selection", 0.0)
    left, without_cohorts = base[MISMATCH], {PARTICIPATION: base[PARTICIPATION] * stale**2}
    unheard = at.constants.dissimilarity * (1 - seen) ** 2
    changes: dict[str, dict[str, float]] = {
        "fedavg": {},
        "fedprox": {DRIFT: base[DRIFT] / pull**2, OPTIMISATION: base[OPTIMISATION] * pull},
        "fednova": {MISMATCH: max(left - work, 0.0)},
        "scaffold": {**without_cohorts, DRIFT: base[DRIFT] * stale**2, MISMATCH: left * stale},
        "fedvarp": without_cohorts,
        "mifa": {**without_cohorts, MISMATCH: max(left - (1 - stale) * away, 0.0) + unheard},
        "fedexp": _faster(base, at.extrapolation),
        "fedavgm": _faster(base, SERVER_LR / (1 - SERVER_MOMENTUM)),
    }
    return {name: base | changed for name, changed in changes.items()}


def _faster(base: dict[str, float], speed_up: float) -> dict[str, float]:
    """Return the terms that change when the server goes so many times as far along each step."""
    factor = min(speed_up, MOST_SPEED_UP)
    return {
        OPTIMISATION: base[OPTIMISATION] / factor,
        NOISE: base[NOISE] * factor,
        PARTICIPATION: base[PARTICIPATION] * factor,
    }


def _settings(terms: dict[str, float], at: Constants) -> tuple[str, ...]:
    """Return which settings make the largest term smaller."""
    stable = 1 / (at.smoothness * max(at.steps, 1))
    advice = {
        OPTIMISATION: (
            f"raise local.lr: up to 1/(L τ) = {stable:.2g} is safe, and it is {at.lr:.2g}"
            if at.lr < stable
            else f"run more rounds: local.lr = {at.lr:.2g} is already at or above 1/(L τ) = {stable:.2g}",
        ),
        NOISE: ("raise local.batch_size, or let local.lr decay with local.schedule",),
        PARTICIPATION: ("raise selection.cohort_size, or let local.lr decay with local.schedule",),
        DRIFT: ("lower local.epochs or local.steps, or local.lr",),
        SELECTION: ("lower selection.pool_size, or select uniformly late in the run",),
        MISMATCH: ("see turnout audit for the cause, and turnout audit --repair for weights that correct it",),
    }
    return advice[max(terms, key=lambda name: terms[name])]
