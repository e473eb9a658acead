"""FedAvg: a weighted average of the client updates.

Intuition: a client with more data has more weight; the weighting states how it corrects for client sampling.

    mean      u = (1/|S|) Σ_{i∈S} Δ_i                 unbiased if K clients are drawn by p_i with replacement from all
    ht        u = Σ_{i∈S} (p_i / π_i) Δ_i             Horvitz–Thompson: unbiased given the available clients; needs π_i
    ht-fleet  u = Σ_{i∈S} (p_i / (q_i π_i)) Δ_i       unbiased over availability as well; needs q_i
    ratio     u = Σ_{i∈S} p_i Δ_i / Σ_{i∈S} p_i       biased, low variance; the form of most implementations
    measured  u = Σ_{i∈S} (p_i / f_i) Δ_i             unbiased if f_i is the mean number of updates of i in a round

π_i is the probability that an available client is selected; with replacement it is the expected number of draws. q_i
is the probability that client i is available in this round. Given the available clients A_t, the expectation of `ht`
is Σ_{i∈A_t} p_i Δ_i: clients that are available less often have less influence in the long run. The expectation of
`ht-fleet` is Σ_i p_i Δ_i over all clients with q_i > 0. These availability rules know q_i: always, bernoulli, diurnal,
markov, resampled. Both forms assume that every selected client returns its update and that there is no filter.
`measured` assumes nothing: f_i comes from an earlier run, and `turnout audit --repair` writes it. In all forms a client
drawn m times counts m times.

Reduces to: one step of gradient descent on F when every client takes one full-gradient step and all take part.
Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas. AISTATS 2017. arXiv:1602.05629.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats
from turnout.errors import ConfigError, Problem, UpdateError
from turnout.protocols import Population
from turnout.rows import Facts
from turnout.settings import Positive, When, rule

Weighting = Literal["mean", "ht", "ht-fleet", "ratio"]
NEEDS_PROBABILITIES = (
    'weighting = "{}" needs inclusion probabilities; {} does not know them. Set aggregation.weighting to "ratio" or '
    '"mean", or select with Uniform, Poisson, or Weighted with replacement.'
)


def measured_weights(facts: Facts, frequencies: Sequence[float]) -> Floats:
    """Return p_i / f_i of each update, times its number of draws; f_i is given for every client."""
    return np.asarray(facts.weights * facts.multiplicity / np.asarray(frequencies)[facts.clients])


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
    # divides p_i by q_i π_i, with q_i the probability to be available; "measured" divides p_i by frequencies
    weighting: Literal["mean", "ht", "ht-fleet", "ratio", "measured"] = "ratio"
    # for weighting = "measured": f_i of every client, greater than 0: updates of it that were used, a round on average
    frequencies: Annotated[tuple[Positive, ...] | None, When(weighting="measured")] = None

    def __post_init__(self) -> None:
        if self.weighting == "measured" and self.frequencies is None:
            raise ConfigError(
                'FedAvg with weighting = "measured" needs frequencies; got none. Set aggregation.frequencies to the '
                "list that turnout audit --repair writes.",
                setting="aggregation.frequencies",
            )

    def coefficients(self, facts: Facts) -> Floats:
        """Return the weight of each update."""
        if self.weighting == "measured":
            assert self.frequencies is not None  # checked when the rule is made
            return measured_weights(facts, self.frequencies)
        return participation_weights(facts, self.weighting)

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the frequencies do not suit the number of clients."""
        if self.frequencies is not None and len(self.frequencies) != population.num_clients:
            yield Problem(
                f"FedAvg needs one frequency per client; got {len(self.frequencies)} for {population.num_clients} "
                "clients. Change aggregation.frequencies.",
                "aggregation.frequencies",
            )
