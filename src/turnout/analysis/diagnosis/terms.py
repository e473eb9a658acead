"""The error terms of FedAvg's bound at measured constants. They are bounds up to constants, on E‖∇F‖² after T rounds.

With λ = η_g η_l τ the work in a step, K clients a round, C = K/N:

    optimisation    2 (F(x⁰) − F*) / (λ T)
    noise           η L σ² / K + η² L² (τ − 1) σ²
    participation   λ L · variance of the step over cohorts          uniform: λ L σ_g² (1 − C) / (C (N − 1))
    client drift    η² L² τ (τ − 1) σ_g²
    selection bias  2 L Γ (ρ̃/ρ̄ − 1)                                  0 for unbiased selection, and for Γ = 0
    mismatch        ‖Σ (p̃_i − p_i) ∇F_i(x)‖²                         what the audit's weights do to the gradient

Reference: Joshi, slides on heterogeneity. Selection bias, there in units of the loss, times 2 L: Cho, Wang, Joshi.
AISTATS 2022. arXiv:2010.01243. Mismatch: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from dataclasses import dataclass

OPTIMISATION, NOISE, PARTICIPATION = "optimisation", "noise", "participation"
DRIFT, SELECTION, MISMATCH = "client drift", "selection bias", "mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the terms are evaluated at."""

    rounds: int  # T
    start_gap: float  # F(x⁰) − F*
    smoothness: float  # L
    noise: float  # σ²
    dissimilarity: float  # σ_g², mean
    participation_variance: float
    step: float  # λ
    lr: float  # η_l
    steps: float  # τ
    cohort: float  # K
    gap: float  # Γ
    skew_bias: float  # ρ̃/ρ̄ − 1
    mismatch: float  # ‖Σ (p̃_i − p_i) ∇F_i(x)‖²


def error_terms(at: Constants) -> dict[str, float]:
    """Return each term of the bound."""
    drift_scale = (at.lr * at.smoothness) ** 2
    return {
        OPTIMISATION: 2 * at.start_gap / (at.step * at.rounds),
        NOISE: at.lr * at.smoothness * at.noise / max(at.cohort, 1) + drift_scale * (at.steps - 1) * at.noise,
        PARTICIPATION: at.step * at.smoothness * at.participation_variance,
        DRIFT: drift_scale * at.steps * (at.steps - 1) * at.dissimilarity,
        SELECTION: 2 * at.smoothness * at.gap * max(at.skew_bias, 0.0),
        MISMATCH: at.mismatch,
    }


def uniform_variance(dissimilarity: float, cohort: int, clients: int) -> float:
    """Return σ_g² (1 − C) / (C (N − 1)): the variance of a mean over K of N clients, drawn uniformly."""
    if clients == 1:
        return 0.0
    share = cohort / clients
    return dissimilarity * (1 - share) / (share * (clients - 1))
