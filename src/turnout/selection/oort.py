"""Oort: prefer clients that have much to teach and do not hold the round up, and keep exploring new ones.

Intuition: what a client is worth is its loss times its data, less what the others wait for it.

    U_i = n_i · L_i, with L_i the mean training loss when i last took part; clipped at the 95 % quantile, scaled to ≤ 1
    Util_i = (U_i + √(0.1 ln t / t_i)) · (T / s_i)^α where s_i > T         t_i the round i was last asked in
    S = ⌊ε_t K⌋ of those never heard from, drawn in proportion to speed 1 / s_i, and the rest of K from the others:
        drawn in proportion to Util_i from those with Util_i ≥ 95 % of the last one that would make it
    ε_t = max(ε · decay^(t−1), least)

s_i are seconds per round, given as a setting: without them nobody is slow and exploration is even. When one kind of
client runs out, the other fills the cohort.

Reduces to: uniform selection until somebody has been heard from, when no seconds are given.
Differs from the paper: U_i is n_i times the mean loss, a lower bound of |B|√(mean loss²) and equal to it when the
samples' losses are equal; T is fixed (no pacer), and nobody is barred for having been asked often.
Reference: Lai, Zhu, Madhyastha, Chowdhury. Oort: efficient federated learning via guided participant selection. OSDI
2021. arXiv:2010.06081.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from turnout.errors import ConfigError
from turnout.protocols import Ask, Choice, Population, View
from turnout.selection.candidates import successive
from turnout.streams import Floats, Ids

CLIP = 0.95  # the quantile above which a utility counts no more
CUT_OFF = 0.95  # of the last utility that would make it
DOUBT = 0.1  # how much not having been asked for long is worth


def statistical_utility(num_examples: Ids, losses: Floats) -> Floats:
    """Return n_i L_i, clipped and scaled to at most 1; all ones when nobody has a loss."""
    worth = num_examples * np.maximum(losses, 0)
    finite = worth[np.isfinite(worth)]
    top = np.quantile(finite, CLIP) if len(finite) else 0.0
    return np.asarray(np.minimum(worth, top) / top if top > 0 else np.ones(len(worth)))


def slowness(seconds: Floats, preferred_seconds: float, penalty: float) -> Floats:
    """Return (T / s_i)^α for those slower than T, 1 for the others."""
    return np.minimum(preferred_seconds / seconds, 1.0) ** penalty


def admitted(utility: Floats, size: int) -> Ids:
    """Return the positions whose utility is at least 95 % of the size-th largest."""
    last = np.sort(utility)[-size]
    return np.flatnonzero(utility >= CUT_OFF * last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oort:
    """Clients by utility: loss times data, less slowness."""

    cohort_size: int  # K
    exploration: float = 0.9  # ε: the share of K for clients never heard from, at first
    exploration_decay: float = 0.98  # its factor a round
    least_exploration: float = 0.2  # where it stops falling
    seconds: tuple[float, ...] | None = None  # s_i: what a round takes each client
    preferred_seconds: float | None = None  # T: what a round may take before its worth falls
    slow_penalty: float = 2.0  # α

    def __post_init__(self) -> None:
        if self.cohort_size < 1:
            raise ConfigError(f"Oort needs cohort_size >= 1; got {self.cohort_size}. Change selection.cohort_size.")
        for name in ("exploration", "exploration_decay", "least_exploration"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"Oort needs 0 <= {name} <= 1; got {getattr(self, name)}. Change selection.{name}.")
        if not 0 <= self.slow_penalty < math.inf:
            raise ConfigError(f"Oort needs slow_penalty >= 0; got {self.slow_penalty}. Change selection.slow_penalty.")
        if (self.seconds is None) != (self.preferred_seconds is None):
            only = "preferred_seconds" if self.seconds is None else "seconds"
            raise ConfigError(
                f"Oort needs seconds and preferred_seconds together; got only {only}. "
                "Set both selection.seconds and selection.preferred_seconds, or neither."
            )
        given = (*(self.seconds or (1.0,)), 1.0 if self.preferred_seconds is None else self.preferred_seconds)
        if not all(0 < value < math.inf for value in given):
            raise ConfigError(
                f"Oort needs seconds > 0 for every client and preferred_seconds > 0; got {min(given)}. "
                "Change selection.seconds or selection.preferred_seconds."
            )

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield what is wrong with the seconds given."""
        if self.seconds is not None and len(self.seconds) != population.num_clients:
            yield (
                f"Oort needs one entry of seconds per client; got {len(self.seconds)} for {population.num_clients} "
                "clients. Change selection.seconds."
            )

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return some clients never heard from and the most useful of the others."""
        heard = ~np.isnan(view.last_losses[pool])
        known, unknown = pool[heard], pool[~heard]
        size = min(self.cohort_size, len(pool))
        explore = min(int(self.exploration_at(view.round) * self.cohort_size + 1e-9), size, len(unknown))
        exploit = min(size - explore, len(known))
        new = successive(unknown, 1 / self._seconds_of(unknown), size - exploit, view, "exploration")
        clients = np.union1d(new, self._useful(known, exploit, view))
        return Choice(
            clients=clients,
            multiplicity=np.ones(len(clients), dtype=np.int64),
            memory={"last_round": self._asked_at(clients, view)},
        )

    def exploration_at(self, round: int) -> float:
        """Return ε_t."""
        return max(self.exploration * self.exploration_decay ** (round - 1), self.least_exploration)

    def utility(self, clients: Ids, view: View) -> Floats:
        """Return Util_i of clients that have been heard from."""
        asked = view.memory["last_round"][clients] if "last_round" in view.memory else np.ones(len(clients))
        doubt = np.sqrt(DOUBT * np.log(view.round) / np.maximum(asked, 1))
        worth = statistical_utility(view.population.sizes[clients], view.last_losses[clients])
        slow = slowness(self._seconds_of(clients), self.preferred_seconds or 1.0, self.slow_penalty)
        return np.asarray((worth + doubt) * slow)

    def _useful(self, known: Ids, size: int, view: View) -> Ids:
        if size == 0:
            return known[:0]
        utility = self.utility(known, view)
        may = admitted(utility, size)
        return successive(known[may], utility[may], size, view, "selection")

    def _seconds_of(self, clients: Ids) -> Floats:
        return np.ones(len(clients)) if self.seconds is None else np.asarray(self.seconds)[clients]

    def _asked_at(self, clients: Ids, view: View) -> Ids:
        """Return the round each client was last asked in, 0 for never."""
        asked: Ids = view.memory.get("last_round", np.zeros(view.population.num_clients, dtype=np.int64)).copy()
        asked[clients] = view.round
        return asked
