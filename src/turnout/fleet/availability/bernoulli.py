"""Bernoulli availability: each client flips its own coin each round.

Intuition: phones that happen to be idle, charging and on Wi-Fi.

    i ∈ A_t with probability q_i, independently
    profile "labels":  q_i = q_min + (1 − q_min) · min(labels of i) / (C − 1)

Reduces to: always up when q = 1, and when q_min = 1.
Differs from the paper: the profile is for any number of classes C and any number of labels per client; MIFA's script
has ten classes and two labels each.
Reference: Gu, Huang, Zhang, Huang (MIFA). NeurIPS 2021. arXiv:2106.04159.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.fleet.labels import label_counts, lowest_labels
from turnout.protocols import Population, View
from turnout.settings import Share, When, rule


def label_probs(counts: Ids, least: float) -> Floats:
    """Return q_i: clients whose lowest label is 0 are up least, those that hold the last label alone always."""
    last = max(counts.shape[1] - 1, 1)
    return np.asarray(least + (1.0 - least) * lowest_labels(counts) / last)


@rule("fleet.availability")
class Bernoulli:
    """Up with a probability of one's own."""

    prob: Annotated[Share | tuple[Share, ...], When(profile="given")] = 0.5  # q: one for all, or one per client
    profile: Literal["given", "labels"] = "given"  # "labels": clients with low labels are up less often
    least: Annotated[Share, When(profile="labels")] = 0.1  # q_min of the profile "labels"

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield what is wrong with the probabilities given."""
        total = population.num_clients
        if self.profile == "given" and isinstance(self.prob, tuple) and len(self.prob) != total:
            yield (
                f"Bernoulli needs one prob, or one per client; got {len(self.prob)} for {total} clients. "
                "Change fleet.availability.prob."
            )

    def up(self, view: View) -> Ids:
        """Return the clients whose coin came up."""
        everyone = view.population.everyone
        coin = view.streams.uniforms("availability", view.round, everyone)[:, 0]
        return everyone[coin < self.probability(everyone, view)]

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return q_i of these clients."""
        if self.profile == "labels":
            way_out = 'Set fleet.availability.profile to "given".'
            counts = label_counts(view, 'Bernoulli with profile = "labels"', way_out)
            return label_probs(counts, self.least)[clients]
        if isinstance(self.prob, float | int):
            return np.full(len(clients), float(self.prob))
        return np.asarray(self.prob, dtype=np.float64)[clients]
