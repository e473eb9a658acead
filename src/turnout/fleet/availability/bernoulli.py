"""Bernoulli availability: each client is available with its own probability, independently in every round.

Intuition: a phone is available if it happens to be idle, charging and on Wi-Fi.

    i ∈ A_t with probability q_i, independently
    profile "labels":  q_i = q_min + (1 − q_min) · min(labels of i) / (C − 1)

Reduces to: always available when q = 1, and when q_min = 1.
Differs from the paper: the profile supports any number of classes C and of labels per client; MIFA's script has ten
classes and two labels per client.
Reference: Gu, Huang, Zhang, Huang (MIFA). NeurIPS 2021. arXiv:2106.04159.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.fleet.labels import label_counts, lowest_labels
from turnout.protocols import Population, View
from turnout.settings import Share, When, rule


def label_probs(counts: Ids, least: float) -> Floats:
    """Return q_i: `least` for clients whose lowest label is 0, rising to 1 for clients with only the last label."""
    last = max(counts.shape[1] - 1, 1)
    return np.asarray(least + (1.0 - least) * lowest_labels(counts) / last)


@rule("fleet.availability")
class Bernoulli:
    """Available with the client's own probability."""

    # probability q_i that a client is available in a round, 0 to 1: one for all clients, or one per client
    prob: Annotated[Share | tuple[Share, ...], When(profile="given")] = 0.5
    # source of q_i: "given" is the setting prob, "labels" makes clients with low labels available less often (MIFA)
    profile: Literal["given", "labels"] = "given"
    # smallest probability q_min of the profile "labels", 0 to 1; 0.1 to 0.2 is usual
    least: Annotated[Share, When(profile="labels")] = 0.1

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list of probabilities does not suit the number of clients."""
        total = population.num_clients
        if self.profile == "given" and isinstance(self.prob, tuple) and len(self.prob) != total:
            yield Problem(
                f"Bernoulli needs one prob, or one per client; got {len(self.prob)} for {total} clients. "
                "Change fleet.availability.prob.",
                "fleet.availability.prob",
            )

    def up(self, view: View) -> Ids:
        """Return the clients that are available by their own draw."""
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
