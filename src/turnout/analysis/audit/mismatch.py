"""How far the weights of a run are from those asked for, and how much each cause adds.

    total variation   TV = ½ Σ_i |p̃_i − p_i|                 the share of the weight that is at the wrong client
    χ²                χ² = Σ_i (p̃_i − p_i)² / p_i            in FedNova's bound on the error
    clients that count   1 / Σ_i p̃_i²                         N if all weights are equal, 1 if one client has all

The share of a cause k in the mismatch is signed, and the shares sum to TV:

    TV_k = ½ Σ_i sign(p̃_i − p_i) (q^k_i − q^{k−1}_i)          Σ_k TV_k = TV

A negative share is a cause that corrects the others, as FedNova's coefficients correct unequal work. What a cause
moves, ½ Σ_i |q^k_i − q^{k−1}_i|, has no sign and does not add up. Chance alone gives about

    TV_chance = ½ √(2/π) Σ_i s_i                              s_i: the standard error of p̃_i over rounds

if p̃ would come to p in a run without end; rounds are taken as independent.
"""

import math
from dataclasses import dataclass

import numpy as np

from turnout.analysis.audit.weights import CAUSES, Weights
from turnout.array_types import Floats

ROUNDING = 1e-12  # a difference of weights below this share of the weight is rounding, and counts as none


def difference(effective: Floats, asked: Floats) -> Floats:
    """Return p̃ − p, with 0 where the two differ by rounding alone."""
    gap = effective - asked
    return np.where(np.abs(gap) <= ROUNDING * np.maximum(np.abs(effective), np.abs(asked)), 0.0, gap)


def total_variation(effective: Floats, asked: Floats) -> float:
    """Return ½ Σ |p̃_i − p_i|."""
    return 0.5 * float(np.abs(difference(effective, asked)).sum())


def chi_square(effective: Floats, asked: Floats) -> float:
    """Return Σ (p̃_i − p_i)² / p_i; infinite if a client with p_i = 0 has weight."""
    gap = difference(effective, asked)
    if (gap[asked == 0] != 0).any():
        return math.inf
    has_weight = asked > 0
    return float((gap[has_weight] ** 2 / asked[has_weight]).sum())


def effective_clients(weights: Floats) -> float:
    """Return 1 / Σ p_i²."""
    return float(1 / np.square(weights).sum())


def chance_variation(weights: Weights) -> float:
    """Return the total variation that the randomness of the rounds alone gives on average."""
    return 0.5 * math.sqrt(2 / math.pi) * float(weights.standard_errors.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What one cause does to the weights."""

    name: str
    adds: float  # signed; the causes sum to the total variation
    moves: float  # total variation between the weights before and after this cause


def split_causes(weights: Weights) -> tuple[Cause, ...]:
    """Return the causes in order; what they add sums to the total variation."""
    signs = np.sign(difference(weights.effective, weights.asked))
    found = []
    for place, name in enumerate(CAUSES):
        gap = difference(weights.stages[place + 1], weights.stages[place])
        found.append(Cause(name=name, adds=0.5 * float(signs @ gap) + 0.0, moves=0.5 * float(np.abs(gap).sum())))
    return tuple(found)
