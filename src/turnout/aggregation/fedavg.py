"""FedAvg: a weighted average of the client updates.

Intuition: a client with more data has more weight; the weighting states how it corrects for client sampling.

    mean      u = (1/|S|) Σ_{i∈S} Δ_i                 unbiased if K clients are drawn by p_i with replacement from all
    ht        u = Σ_{i∈S} (p_i / π_i) Δ_i             Horvitz–Thompson: unbiased given the available clients; needs π_i
    ht-fleet  u = Σ_{i∈S} (p_i / (q_i π_i)) Δ_i       unbiased over availability as well; needs q_i
    ratio     u = Σ_{i∈S} p_i Δ_i / Σ_{i∈S} p_i       biased, low variance; the form of most implementations

π_i is the probability that an available client is selected; with replacement it is the expected number of draws. q_i
is the probability that client i is available in this round. Given the available clients A_t, the expectation of `ht`
is Σ_{i∈A_t} p_i Δ_i: clients that are available less often have less influence in the long run. The expectation of
`ht-fleet` is Σ_i p_i Δ_i over all clients with q_i > 0. These availability rules know q_i: always, bernoulli, diurnal,
markov, resampled. Both forms assume that every selected client returns its update and that there is no filter. In all
four forms a client drawn m times counts m times.

Reduces to: one step of gradient descent on F when every client takes one full-gradient step and all take part.
Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas. AISTATS 2017. arXiv:1602.05629.
"""

from typing import Literal

import numpy as np

from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.rows import Facts
from turnout.settings import rule

Weighting = Literal["mean", "ht", "ht-fleet", "ratio"]
NEEDS_PROBABILITIES = (
    'weighting = "{}" needs inclusion probabilities; {} does not know them. Set aggregation.weighting to "ratio" or '
    '"mean", or select with Uniform, Poisson, or Weighted with replacement.'
)


def participation_weights(facts: Facts, weighting: Weighting) -> Floats:
    """Return the weight of each update; under `ht` and `ht-fleet` the weights need not sum to one."""
    if weighting == "mean":
        return facts.multiplicity / max(facts.num_draws, 1)
    data_weights = facts.weights * facts.multiplicity
    if weighting == "ratio":
        total = data_weights.sum()
        return data_weights / total if total > 0 else data_weights
    if len(facts) == 0:
        return data_weights
    if facts.inclusion_prob is None:
        raise UpdateError(NEEDS_PROBABILITIES.format(weighting, "this selection rule"))
    if weighting == "ht":
        return np.asarray(data_weights / facts.inclusion_prob)
    assert facts.availability_prob is not None  # checked before the run
    return np.asarray(data_weights / (facts.inclusion_prob * facts.availability_prob))


@rule("aggregation")
class FedAvg:
    """A weighted average of the client updates."""

    # how client weights correct for client sampling: "ratio" normalises the data shares p_i over the cohort, which is
    # usual; "mean" gives every draw the same weight; "ht" divides p_i by the inclusion probability π_i; "ht-fleet"
    # divides p_i by q_i π_i, with q_i the probability to be available
    weighting: Weighting = "ratio"

    def coefficients(self, facts: Facts) -> Floats:
        """Return the weight of each update."""
        return participation_weights(facts, self.weighting)
