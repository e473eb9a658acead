"""Markov availability: an available client tends to stay available, an absent client tends to stay absent.

Intuition: a phone that is charging in this hour is likely to be charging in the next.

    P(up → away) = ℓ      P(away → up) = j      share of time up = j / (j + ℓ)

The state is a function of (seed, client, round), without a memory: one uniform number u_s per client and round gives
the transition from both states (away → up if u_s < j, up → up if u_s < 1 − ℓ). In a round in which both transitions
lead to the same state, the past has no effect. The rule therefore searches back from round t only to the last such
round. Before round 1 the state is drawn from the stationary distribution.

Reduces to: Bernoulli with prob = j when j + ℓ = 1, draw for draw.
Reference: Propp, Wilson. Exact sampling with coupled Markov chains. Random Structures & Algorithms 1996.
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import Share, rule
from turnout.streams import Streams


def states(streams: Streams, clients: Ids, round: int, *, join: float, leave: float) -> NDArray[np.bool_]:
    """Return whether each client is available in a round; a client's state does not depend on the other clients."""
    low, high = min(join, 1.0 - leave), max(join, 1.0 - leave)
    flips = join > 1.0 - leave  # a draw between low and high changes the state (true) or keeps it (false)
    is_up, flipped = np.zeros(len(clients), dtype=bool), False
    undecided = np.arange(len(clients))  # positions whose state still depends on the previous round
    for past in range(round, 0, -1):
        draw = streams.uniforms("availability", past, clients[undecided])[:, 0]
        is_up[undecided[draw < low]] = not flipped
        is_up[undecided[draw >= high]] = flipped
        undecided = undecided[(draw >= low) & (draw < high)]
        flipped ^= flips
        if len(undecided) == 0:
            return is_up
    first = streams.uniforms("availability", 0, clients[undecided])[:, 0] < join / (join + leave)
    is_up[undecided] = first ^ flipped
    return is_up


@rule("fleet.availability")
class Markov:
    """A two-state Markov chain per client."""

    join: Share = 0.1  # probability j per round that an absent client becomes available, 0 to 1
    leave: Share = 0.3  # probability ℓ per round that an available client becomes absent, 0 to 1

    def __post_init__(self) -> None:
        if self.join + self.leave == 0:
            raise ConfigError(
                "Markov needs join + leave > 0; got 0, with which no client ever changes its state. "
                "Set fleet.availability.join, or use always or never.",
                setting="fleet.availability.join",
            )

    def up(self, view: View) -> Ids:
        """Return the available clients."""
        everyone = view.population.everyone
        is_up = states(view.streams, everyone, view.round, join=self.join, leave=self.leave)
        return np.asarray(everyone[is_up])

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return j / (j + ℓ), the probability in every round, since a run starts in the stationary distribution."""
        return np.full(len(clients), self.join / (self.join + self.leave))
