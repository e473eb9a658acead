"""FedAvg: a weighted average of what the clients changed.

Intuition: clients that hold more of the data count for more; how that is corrected for who was asked is explicit.

    mean   u = (1/|S|) Σ_{i∈S} Δ_i                    unbiased under K draws with replacement by p
    ht     u = Σ_{i∈S} (p_i / π_i) Δ_i                Horvitz–Thompson: always unbiased; needs π_i
    ratio  u = Σ_{i∈S} p_i Δ_i / Σ_{i∈S} p_i          biased, low variance; what most code does

A client drawn m times counts m times in all three; for `ht` under draws with replacement π_i is the expected number
of draws.

Reduces to: one step of gradient descent on F when every client takes one full-gradient step and all take part.
Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas. AISTATS 2017. arXiv:1602.05629.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnout.errors import UpdateError
from turnout.rows import Facts
from turnout.streams import Floats

Weighting = Literal["mean", "ht", "ratio"]


def participation_weights(facts: Facts, weighting: Weighting) -> Floats:
    """Return the weight of each row; they need not sum to one under `ht`."""
    if weighting == "mean":
        return facts.multiplicity / max(facts.num_draws, 1)
    drawn = facts.weights * facts.multiplicity
    if weighting == "ratio":
        total = drawn.sum()
        return drawn / total if total > 0 else drawn
    if facts.inclusion_prob is None:
        raise UpdateError(
            'weighting = "ht" needs inclusion probabilities; this selection rule does not know them. '
            'Set aggregation.weighting to "ratio" or "mean", or select with "uniform" or "weighted".'
        )
    return np.asarray(drawn / facts.inclusion_prob)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg:
    """A weighted average of the changes."""

    weighting: Weighting = "ratio"  # what who was asked is corrected by

    def coefficients(self, facts: Facts) -> Floats:
        """Return the weight of each row."""
        return participation_weights(facts, self.weighting)
