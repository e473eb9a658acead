"""FedAvg: a weighted average of what the clients changed.

Intuition: clients that hold more of the data count for more; how that is corrected for who was asked is explicit.

    mean      u = (1/|S|) Σ_{i∈S} Δ_i                 unbiased under K draws by p with replacement from all clients
    ht        u = Σ_{i∈S} (p_i / π_i) Δ_i             Horvitz–Thompson: unbiased given who is up; needs π_i
    ht-fleet  u = Σ_{i∈S} (p_i / (q_i π_i)) Δ_i       unbiased over who is up, too; needs q_i
    ratio     u = Σ_{i∈S} p_i Δ_i / Σ_{i∈S} p_i       biased, low variance; what most code does

π_i is how likely the selection asks a client that is up, and under draws with replacement the expected number of draws;
q_i is how likely the fleet has client i up in this round. Given who is up, A_t, the mean of `ht` is Σ_{i∈A_t} p_i Δ_i:
clients that are up less often count for less in the long run. `ht-fleet` has the mean Σ_i p_i Δ_i over all clients with
q_i > 0; availability by chance knows its q_i (always, bernoulli, diurnal, markov, resampled). Both suppose that
everyone asked answers and that no filter came before. A client drawn m times counts m times in all of them.

Reduces to: one step of gradient descent on F when every client takes one full-gradient step and all take part.
Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas. AISTATS 2017. arXiv:1602.05629.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.optional import knows_probability, may_know_inclusion_prob
from turnout.rows import Facts
from turnout.settings import rule

Weighting = Literal["mean", "ht", "ht-fleet", "ratio"]
NEEDS_PROBABILITIES = (
    'weighting = "{}" needs inclusion probabilities; {} does not know them. Set aggregation.weighting to "ratio" or '
    '"mean", or select with Uniform, Poisson, or Weighted with replacement.'
)


def participation_weights(facts: Facts, weighting: Weighting) -> Floats:
    """Return the weight of each row; they need not sum to one under `ht` and `ht-fleet`."""
    if weighting == "mean":
        return facts.multiplicity / max(facts.num_draws, 1)
    drawn = facts.weights * facts.multiplicity
    if weighting == "ratio":
        total = drawn.sum()
        return drawn / total if total > 0 else drawn
    if len(facts) == 0:
        return drawn
    if facts.inclusion_prob is None:
        raise UpdateError(NEEDS_PROBABILITIES.format(weighting, "this selection rule"))
    if weighting == "ht":
        return np.asarray(drawn / facts.inclusion_prob)
    assert facts.availability_prob is not None  # checked before the run
    return np.asarray(drawn / (facts.inclusion_prob * facts.availability_prob))


def weighting_objections(weighting: Weighting, plan: Any) -> Iterator[str]:
    """Yield why a selection or a fleet does not go with a weighting that corrects for who is asked or up."""
    if weighting in ("ht", "ht-fleet") and not may_know_inclusion_prob(plan.selection):
        yield NEEDS_PROBABILITIES.format(weighting, type(plan.selection).__name__)
    up = plan.fleet.availability
    if weighting == "ht-fleet" and not knows_probability(up):
        yield (
            f'weighting = "ht-fleet" needs to know how likely each client is to be up; {type(up).__name__} does not '
            'say. Set aggregation.weighting to "ht", or fleet.availability to bernoulli, for example.'
        )


@rule("aggregation")
class FedAvg:
    """A weighted average of the changes."""

    weighting: Weighting = "ratio"  # how weights correct for who was asked, and for who was up

    def coefficients(self, facts: Facts) -> Floats:
        """Return the weight of each row."""
        return participation_weights(facts, self.weighting)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a fleet does not go with the weighting."""
        return weighting_objections(self.weighting, plan)
