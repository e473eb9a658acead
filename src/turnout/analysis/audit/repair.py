"""Repair: the coefficients, or the selection probabilities, that bring p̃ to p within the participation observed.

Coefficients. With S_i = Σ_t draws · η_l ‖a_i‖₁ over the updates of client i that were used in T rounds, D_i its draws,
and w̄ = Σ S_i / Σ D_i the mean work of an update, the coefficient p_i / f_i on each update gives p̃ = p over the clients
that were used:

    f_i = S_i / (T w̄)                       Σ_t (p_i / f_i) · draws · η_l ‖a_i‖₁ = p_i T w̄

f_i is the mean number of updates of client i in a round if all updates have the same work. FedAvg takes it as
`weighting = "measured"`. Clients that were never used stay without weight: no weighting can bring p̃ closer to p than

    TV = Σ_{i never used} p_i

The price is noise. If the noise in every update has one variance per work done, that of the mean step is proportional
to V = Σ_t Σ_i (w_i^t)² / (Σ_t Σ_i w_i^t)², and the repair multiplies it by V_repaired / V.

Selection. A rule that draws client i with probability π_i when it is available, a_i of the rounds, uses it π_i a_i
times a round. With K draws a round, the nearest to p that π_i ≤ 1 allows is

    π_i a_i = min(a_i, κ p_i)               κ such that Σ_i min(a_i, κ p_i) = K
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.analysis.audit.audit import Audit
from turnout.analysis.audit.mismatch import total_variation
from turnout.array_types import Floats, Ids

DIGITS = 6  # of a frequency in a study file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repair:
    """Weights for the next run, and what they cost."""

    frequencies: Floats  # f_i by client; for clients that were never used 1 / rounds, as if once
    never_used: Ids  # clients of the objective that no weighting can reach
    remaining: float  # total variation that is left with these coefficients
    noise_factor: float  # how much the repair multiplies the noise of the mean step
    selection: Floats  # π_i by client: nearest to p by selection alone
    remaining_by_selection: float  # total variation that is left with these probabilities and equal coefficients

    @property
    def aggregation(self) -> dict[str, Any]:
        """The section of a study file that applies the coefficients."""
        frequencies = [float(f"{value:.{DIGITS}g}") for value in self.frequencies]
        return {"use": "fedavg", "weighting": "measured", "frequencies": frequencies}

    def as_dict(self) -> dict[str, Any]:
        """Return every number as plain values."""
        return {
            "frequencies": self.frequencies.tolist(),
            "never_used": self.never_used.tolist(),
            "remaining": self.remaining,
            "noise_factor": self.noise_factor,
            "selection": self.selection.tolist(),
            "remaining_by_selection": self.remaining_by_selection,
        }


def repair(found: Audit) -> Repair:
    """Return the repair of an audited run."""
    weights, asked = found.weights, found.weights.asked
    mean_work = weights.worked_draws.sum() / weights.draws.sum()  # w̄
    used = weights.worked_draws > 0
    frequencies = np.where(used, weights.worked_draws / (weights.rounds * mean_work), 1 / weights.rounds)
    coefficients = asked / frequencies
    reached = coefficients * weights.worked_draws
    noise = float((coefficients**2 * weights.square_worked_draws).sum() / reached.sum() ** 2)
    available = weights.times_up / weights.rounds
    frequency = nearest_frequencies(asked, available, float(weights.draws.sum() / weights.rounds))
    chosen = np.divide(frequency, available, out=np.zeros_like(frequency), where=available > 0)
    return Repair(
        frequencies=frequencies,
        never_used=np.flatnonzero(~used & (asked > 0)),
        remaining=total_variation(reached / reached.sum(), asked),
        noise_factor=noise / weights.noise,
        selection=chosen,
        remaining_by_selection=total_variation(frequency / frequency.sum(), asked),
    )


def nearest_frequencies(asked: Floats, available: Floats, draws: float) -> Floats:
    """Return min(a_i, κ p_i) with κ such that they sum to the number of draws, or all a_i if that is too many."""
    reachable = np.where(asked > 0, available, 0.0)
    if reachable.sum() <= draws:
        return reachable
    bounds = np.divide(available, asked, out=np.full_like(asked, np.inf), where=asked > 0)  # κ at which i is full
    order = np.argsort(bounds, kind="stable")
    full = np.concatenate([[0.0], np.cumsum(reachable[order])])  # Σ a_i over the full ones
    free = np.concatenate([[asked.sum()], asked.sum() - np.cumsum(asked[order])])  # Σ p_i over the others
    for place, bound in enumerate(bounds[order]):
        if full[place] + bound * free[place] >= draws:
            return np.asarray(np.minimum(reachable, (draws - full[place]) / free[place] * asked))
    return reachable
