"""What participation does to the step: its variance at a model, and its bias by cause.

From the rounds of a pilot run, with r_t the shares of the clients in round t (they sum to one) and g_i = ∇F_i(x):

    variance   (1/(R−1)) Σ_t ‖Σ_i r_{t,i} g_i − d̄‖²       d̄: their mean; for K of N clients drawn uniformly with equal p
                                                             its expectation is σ_g² (1 − C) / (C (N − 1)),  C = K/N
    bias       ‖Σ_i (q^k_i − q^{k−1}_i) g_i‖²               what cause k of the audit does to the gradient
    ρ          Σ_i s_i (F_i − F_i*) / Σ_i p_i (F_i − F_i*)  selection skew; s_i: share of client i among the selected
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.analysis.audit.weights import CAUSES, RoundFacts, Weights
from turnout.analysis.diagnosis.estimate import Estimate
from turnout.analysis.diagnosis.heterogeneity import square_norms, weighted_row
from turnout.analysis.diagnosis.prober import Prober


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What some rounds of the planned run showed."""

    weights: Weights  # its audit
    rounds: Sequence[RoundFacts]
    mean_step: float  # λ̄: mean over the steps of Σ_i η_g c_i η_l ‖a_i‖₁, the work in a step
    mean_cohort: float  # K: mean number of updates used
    mean_steps: float  # τ: mean number of local steps asked of a selected client
    mean_lr: float  # η_l: mean local rate, from work over steps

    @property
    def whole_steps(self) -> int:
        """τ as a whole number."""
        return max(round(self.mean_steps), 1)

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.weights.asked)


def participation_variance(pilot: Pilot, prober: Prober, gradients: Tensor) -> Estimate:
    """Return the variance of the step over rounds, had every client sent its gradient at one model."""
    directions = []
    for facts in pilot.rounds:
        shares = facts.fresh[prober.clients]
        if shares.sum() > 0:
            directions.append(weighted_row(shares / shares.sum(), gradients))
    if len(directions) < 2:
        return Estimate(float("nan"), float("nan"))
    rows = torch.stack(directions)
    squares = square_norms(rows - rows.mean(0)) * len(rows) / (len(rows) - 1)
    return Estimate(float(squares.mean()), float(squares.std(ddof=1) / len(rows) ** 0.5))


def bias_by_cause(pilot: Pilot, prober: Prober, gradients: Tensor) -> dict[str, Estimate]:
    """Return what each cause of the audit does to the gradient, squared; and "all causes" together.

    The error is that of the effective weights, which a pilot of few rounds knows badly. What it gives on average is
    taken off "all causes".
    """
    stages = pilot.weights.stages[:, prober.clients]
    noise = float(pilot.weights.standard_errors[prober.clients] ** 2 @ square_norms(gradients))
    found = {
        cause: Estimate(_square(weighted_row(stages[place + 1] - stages[place], gradients)), noise)
        for place, cause in enumerate(CAUSES)
    }
    whole = _square(weighted_row(stages[-1] - stages[0], gradients))
    return {**found, "all causes": Estimate(max(whole - noise, 0.0), noise)}


def _square(row: Tensor) -> float:
    return float(torch.linalg.vector_norm(row, dtype=torch.float64) ** 2)
