"""What every attack shares: who attacks, and what attackers see of a round.

Who attacks has a stream of its own, so it is the same whatever the attack, the defence and the round:

    m = round(fraction·N) clients, those with the smallest u_i;  u_i ~ U(0, 1) keyed by (seed, "attackers", client)

The attackers of a small fraction are therefore among those of a larger one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import Population
from turnout.settings import ClientId, Share, rule
from turnout.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What attackers see of a round: everyone's honest change, and the model it started from."""

    round: int
    streams: Streams
    model: Tensor  # x
    clients: Ids  # ascending
    hostile: Any  # bool per client: does it attack?
    delta: Tensor  # what each would have sent, one row per client

    @property
    def own(self) -> Tensor:
        """The attackers' own honest changes."""
        return self.delta[torch.from_numpy(self.hostile)]

    @property
    def honest(self) -> Tensor:
        """The changes of everyone else, as far as they are finite; the attackers' own where there is nobody else."""
        if self.hostile.all():
            return self.own
        rows = self.delta[torch.from_numpy(~self.hostile)]
        return rows[torch.isfinite(rows).all(1)]

    def noise(self) -> Tensor:
        """Return standard normal numbers, one row per attacker, each with a stream of its own."""
        size = self.delta.shape[1]
        drawn: list[Floats] = [
            self.streams.generator("attack", self.round, int(client)).standard_normal(size)
            for client in self.clients[self.hostile]
        ]
        return torch.as_tensor(np.stack(drawn), dtype=self.delta.dtype, device=self.delta.device)


class Attack(Protocol):
    """What hostile clients do; it can `forge` rows, `relabel` training samples, or both."""

    def attackers(self, num_clients: int, streams: Streams) -> Any:
        """Return a bool per client: does it attack?"""
        ...


class Forger(Attack, Protocol):
    """An attack on what is sent."""

    def forge(self, seen: Seen) -> Tensor:
        """Return what the attackers send instead, one row each."""
        ...


class Relabeller(Attack, Protocol):
    """An attack on what is trained on."""

    def relabel(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return the labels that attackers train on instead of these."""
        ...


def forges(attack: Attack | None) -> TypeGuard[Forger]:
    """Whether attackers send something else than what they learned."""
    return hasattr(attack, "forge")


def relabels(attack: Attack | None) -> TypeGuard[Relabeller]:
    """Whether attackers train on labels of their own; an attack that can may say `relabels = False`."""
    return hasattr(attack, "relabel") and bool(getattr(attack, "relabels", True))


@lru_cache(maxsize=32)
def drawn_attackers(seed: int, num_clients: int, fraction: float) -> Any:
    """Return a bool per client, true for round(fraction·N) of them; not to be written to."""
    hostile = np.zeros(num_clients, dtype=bool)
    keys = Streams(seed).uniforms("attackers", 0, np.arange(num_clients))[:, 0]
    hostile[np.argsort(keys, kind="stable")[: round(fraction * num_clients)]] = True
    hostile.setflags(write=False)
    return hostile


@rule("attack")
class Attackers:
    """Who attacks: a share of all clients, or these."""

    fraction: Share | None = None  # the share of clients that attack
    clients: tuple[ClientId, ...] | None = None  # or which ones

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.fraction is None) == (self.clients is None):
            given = "neither" if self.fraction is None else "both"
            raise ConfigError(f"{name} needs fraction or clients; got {given}. Set attack.fraction or attack.clients.")
        if self.clients is not None and len(set(self.clients)) < len(self.clients):
            raise ConfigError(
                f"{name} needs each of its clients once; got {list(self.clients)}. Change attack.clients."
            )

    def attackers(self, num_clients: int, streams: Streams) -> Any:
        """Return a bool per client: does it attack?"""
        if self.clients is None:
            return drawn_attackers(streams.seed, num_clients, self.fraction or 0.0)
        hostile = np.zeros(num_clients, dtype=bool)
        hostile[list(self.clients)] = True
        return hostile

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why it cannot be these clients."""
        if self.clients is not None and max(self.clients, default=-1) >= population.num_clients:
            yield (
                f"{type(self).__name__} needs clients below {population.num_clients}, the number of clients; "
                f"got {max(self.clients)}. Change attack.clients."
            )
