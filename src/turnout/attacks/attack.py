"""Parts that all attacks share: which clients attack, and what they see of a round.

The set of attackers has its own random stream, so it is the same for every attack, defence and round:

    m = round(fraction·N) clients, those with the smallest u_i;  u_i ~ U(0, 1) keyed by (seed, "attackers", client)

The attackers of a small fraction are therefore a subset of those of a larger one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError, Problem
from turnout.protocols import Population
from turnout.settings import ClientId, Share, rule
from turnout.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What attackers see of a round: the honest update of every client, and the model it started from."""

    round: int
    streams: Streams
    model: Tensor  # x
    clients: Ids  # ascending
    hostile: Any  # bool per client: whether it attacks
    delta: Tensor  # the honest updates, one row per client

    @property
    def own(self) -> Tensor:
        """The attackers' own honest updates."""
        return self.delta[torch.from_numpy(self.hostile)]

    @property
    def honest(self) -> Tensor:
        """The finite updates of all other clients; the attackers' own updates if there are no other clients."""
        if self.hostile.all():
            return self.own
        rows = self.delta[torch.from_numpy(~self.hostile)]
        return rows[torch.isfinite(rows).all(1)]

    def noise(self) -> Tensor:
        """Return standard normal noise, one row per attacker, each with its own random stream."""
        size = self.delta.shape[1]
        rows: list[Floats] = [
            self.streams.generator("attack", self.round, int(client)).standard_normal(size)
            for client in self.clients[self.hostile]
        ]
        return torch.as_tensor(np.stack(rows), dtype=self.delta.dtype, device=self.delta.device)


class Attack(Protocol):
    """What malicious clients do: an attack can `forge` updates, `relabel` training samples, or both.

    Both are traits of an attack: see `turnout.traits.AttackTraits`.
    """

    def attackers(self, num_clients: int, streams: Streams) -> Any:
        """Return a bool per client: whether it attacks."""
        ...


@lru_cache(maxsize=32)
def drawn_attackers(seed: int, num_clients: int, fraction: float) -> Any:
    """Return a read-only bool per client, true for round(fraction·N) of them."""
    hostile = np.zeros(num_clients, dtype=bool)
    keys = Streams(seed).uniforms("attackers", 0, np.arange(num_clients))[:, 0]
    hostile[np.argsort(keys, kind="stable")[: round(fraction * num_clients)]] = True
    hostile.setflags(write=False)
    return hostile


@rule("attack")
class Attackers:
    """The set of attackers: a random share of all clients, or a list of clients."""

    fraction: Share | None = None  # share of all clients that attack, 0 to 1, drawn at random once; 0.1 to 0.3 is usual
    clients: tuple[ClientId, ...] | None = None  # ids of the clients that attack, instead of fraction

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.fraction is None) == (self.clients is None):
            got = "neither" if self.fraction is None else "both"
            raise ConfigError(
                f"{name} needs fraction or clients; got {got}. Set attack.fraction or attack.clients.",
                setting="attack.fraction",
            )
        if self.clients is not None and len(set(self.clients)) < len(self.clients):
            raise ConfigError(
                f"{name} needs each of its clients once; got {list(self.clients)}. Change attack.clients.",
                setting="attack.clients",
            )

    def attackers(self, num_clients: int, streams: Streams) -> Any:
        """Return a bool per client: whether it attacks."""
        if self.clients is None:
            return drawn_attackers(streams.seed, num_clients, self.fraction or 0.0)
        hostile = np.zeros(num_clients, dtype=bool)
        hostile[list(self.clients)] = True
        return hostile

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield which attackers are not clients of the federation."""
        if self.clients is not None and max(self.clients, default=-1) >= population.num_clients:
            yield Problem(
                f"{type(self).__name__} needs clients below {population.num_clients}, the number of clients; "
                f"got {max(self.clients)}. Change attack.clients.",
                "attack.clients",
            )
