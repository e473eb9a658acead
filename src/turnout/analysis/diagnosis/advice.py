"""Which rules address the terms that dominate: eight rules in the order of what the bound leaves with each.

The bound of a rule is that of FedAvg with some terms changed. s is the speed-up of the server step. Stored updates are
N / K rounds old on average, and there for v = max(0, 1 − N / (K T)) of the run: of what they could remove, the share
e = v c^{N/K} goes, where c is the measured share of the differences between clients that one round leaves as they were.

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

from dataclasses import dataclass

from turnout.analysis.diagnosis.participation import Pilot
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRule:
    """One rule, and what the bound leaves with it."""

    name: str  # as in `turnout ls algorithms`
    bound: float
    terms: dict[str, float]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Rules in order, best first, and settings to change."""

    rules: tuple[RankedRule, ...]
    settings: tuple[str, ...]


def rank_rules(
    at: Constants, pilot: Pilot, *, drift: float, retention: float, bias: dict[str, float], extrapolation: float
) -> Advice:
    """Return the eight rules in order of their bounds.

    Args:
        at: the measured constants.
        pilot: what the pilot showed.
        drift: the drift of the mean update.
        retention: the share c of the differences between clients that one round leaves as they were.
        bias: squared bias of the gradient, by cause of the audit.
        extrapolation: FedExP's server learning rate, as measured.
    """
    base = error_terms(at) | {DRIFT: drift**2}
    rarity = pilot.num_clients / max(at.cohort, 1e-9)  # N / K
    seen = max(0.0, 1 - rarity / at.rounds)  # v
    fresh = seen * retention**rarity  # e
    pull = 1 + PROX_STRENGTH * at.lr * at.steps
    work, away = bias.get("local work", 0.0), bias.get("availability", 0.0) + bias.get("selection", 0.0)
    left = base[MISMATCH]
    candidates = {
        "fedavg": ({}, "it has every term of the bound"),
        "fedprox": (
            {DRIFT: base[DRIFT] / pull**2, OPTIMISATION: base[OPTIMISATION] * pull},
            "the proximal term holds clients near the model, and slows them",
        ),
        "fednova": ({MISMATCH: max(left - work, 0.0)}, "clients that do more local work count no more than others"),
        "scaffold": (
            {
                DRIFT: base[DRIFT] * (1 - fresh) ** 2,
                PARTICIPATION: base[PARTICIPATION] * (1 - fresh) ** 2,
                MISMATCH: left * (1 - fresh),
            },
            "control variates remove what is particular to each client: drift, cohorts that differ, and the mismatch",
        ),
        "fedvarp": (
            {PARTICIPATION: base[PARTICIPATION] * (1 - fresh) ** 2},
            "stored updates stand in for clients that are not in the cohort",
        ),
        "mifa": (
            {
                PARTICIPATION: base[PARTICIPATION] * (1 - fresh) ** 2,
                MISMATCH: max(left - fresh * away, 0.0) + at.dissimilarity * (1 - seen) ** 2,
            },
            "the last update of every client counts, whoever is away",
        ),
        "fedexp": (
            _faster(base, extrapolation),
            f"local updates differ enough for a server rate of {extrapolation:.2g}",
        ),
        "fedavgm": (
            _faster(base, SERVER_LR / (1 - SERVER_MOMENTUM)),
            "server momentum adds up what successive rounds agree on",
        ),
    }
    rules = [
        RankedRule(name=name, bound=sum((base | changed).values()), terms=base | changed, reason=reason)
        for name, (changed, reason) in candidates.items()
    ]
    return Advice(rules=tuple(sorted(rules, key=lambda rule: rule.bound)), settings=_settings(error_terms(at), at))


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
