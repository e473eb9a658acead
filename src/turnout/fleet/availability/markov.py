"""Markov availability: a client that is up tends to stay up, one that is away tends to stay away.

Intuition: a phone on its charger this hour is likely on its charger in the next.

    P(up → away) = ℓ      P(away → up) = j      share of time up = j / (j + ℓ)

The state is a function of (seed, client, round), with nothing stored: one uniform u_s per client and round moves both
states at once (away → up if u_s < j, up → up if u_s < 1 − ℓ). Where both agree the past does not matter, so one looks
back from round t only to the last such round; before round 1 the state is drawn from the share of time up.

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
    """Return whether each client is up in a round; the answer does not depend on which others are asked for."""
    low, high = min(join, 1.0 - leave), max(join, 1.0 - leave)
    flips = join > 1.0 - leave  # between the two: keep the state, or change it
    is_up, flipped = np.zeros(len(clients), dtype=bool), False
    open_ = np.arange(len(clients))  # places whose state still depends on the round before
    for past in range(round, 0, -1):
        draw = streams.uniforms("availability", past, clients[open_])[:, 0]
        is_up[open_[draw < low]] = not flipped
        is_up[open_[draw >= high]] = flipped
        open_ = open_[(draw >= low) & (draw < high)]
        flipped ^= flips
        if len(open_) == 0:
            return is_up
    first = streams.uniforms("availability", 0, clients[open_])[:, 0] < join / (join + leave)
    is_up[open_] = first ^ flipped
    return is_up


@rule("fleet.availability")
class Markov:
    """Two states, with a memory of one round."""

    join: Share = 0.1  # j: the probability that a client that is away comes up
    leave: Share = 0.3  # ℓ: the probability that a client that is up goes away

    def __post_init__(self) -> None:
        if self.join + self.leave == 0:
            raise ConfigError(
                "Markov needs join + leave > 0; got 0, and nobody would ever change. Set fleet.availability.join, or "
                "use always, or never."
            )

    def up(self, view: View) -> Ids:
        """Return the clients that are up."""
        everyone = view.population.everyone
        is_up = states(view.streams, everyone, view.round, join=self.join, leave=self.leave)
        return np.asarray(everyone[is_up])

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return the share of time up, which is the probability in every round: a run starts in the steady state."""
        return np.full(len(clients), self.join / (self.join + self.leave))
