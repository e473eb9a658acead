"""Bounds for clients that do part of the work, arrive and depart. They hold up to constants, for strongly convex F.

    schemes     weights of the objective that each scheme minimises, from the work s_k of E steps seen in the pilot:
                A  p_k E[1{s_k = E} / K_t],   B  p_k E[s_k],   C  p_k E[1{s_k > 0}]; it converges to x* if they are ∝ p
    shift       ‖x* − x̃*‖ ≤ (2 √(2L) / μ) · n_l / (n + n_l) · √Γ_l for an arrival; n_l / n · √Γ̃_l for a departure
    reboot      a fast reboot helps if ‖x − x*‖ < (F̃(x*) − F̃(x̃*)) / ((shift + 1) p̃_l W)
    departure   exclude client l if T − τ₀ ≥ c √(Γ_l τ₀)

Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954 (Theorem 3.2, Corollaries 4.0.1 to 4.0.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.analysis.audit.mismatch import total_variation
from turnout.analysis.audit.weights import RoundFacts
from turnout.array_types import Floats


def optimum_shift(smoothness: float, strong_convexity: float, share: float, gap: float) -> float:
    """Return the bound on ‖x* − x̃*‖; `share` is the client's weight after its arrival, or before its departure."""
    return 2 * math.sqrt(2 * smoothness) / strong_convexity * share * math.sqrt(max(gap, 0.0))


def reboot_radius(gain: float, shift: float, share: float, gradient_bound: float) -> float:
    """Return the distance to the old optimum within which an extra update of the arriving client helps.

    Args:
        gain: F̃(x*) − F̃(x̃*), what the new objective gains by the move to its own optimum.
        shift: the bound on ‖x* − x̃*‖.
        share: p̃_l of the arriving client.
        gradient_bound: W, a bound on ‖∇F‖ and ‖∇²F‖.
    """
    return gain / ((shift + 1) * share * gradient_bound)


def rounds_to_exclude(gap: float, departs_at: int, constant: float = 1.0) -> int:
    """Return how many rounds must be left after a departure for its exclusion to pay: ⌈c √(Γ_l τ₀)⌉."""
    return math.ceil(constant * math.sqrt(max(gap, 0.0) * departs_at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What one scheme of Ruan et al. minimises."""

    name: str
    mismatch: float  # total variation of its weights from p; 0: it converges to x*
    never: int  # clients that carry no weight


def schemes(rounds: Sequence[RoundFacts], asked: Floats) -> tuple[Scheme, ...]:
    """Return the schemes A, B and C, with the work that clients did in these rounds."""
    sums = {name: np.zeros(len(asked)) for name in "ABC"}
    for facts in rounds:
        active = facts.used > 0
        complete = active & (facts.local_steps >= facts.asked_steps)
        sums["A"] += asked * complete * len(asked) / max(int(complete.sum()), 1)
        sums["B"] += asked * np.where(active, facts.local_steps / np.maximum(facts.asked_steps, 1), 0)
        sums["C"] += asked * active
    return tuple(
        Scheme(
            name=name,
            mismatch=total_variation(total / total.sum(), asked) if total.sum() > 0 else 1.0,
            never=int(((total == 0) & (asked > 0)).sum()),
        )
        for name, total in sums.items()
    )
