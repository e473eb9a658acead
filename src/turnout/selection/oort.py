"""Oort: prefer clients that have much to teach and do not hold the round up, and keep exploring new ones.

Intuition: what a client is worth is its loss times its data, less what the others wait for it.

    U_i = n_i · L_i, with L_i the mean training loss when i last took part; clipped at the 95 % quantile, scaled to ≤ 1
    Util_i = (U_i + √(0.1 ln t / t_i)) · (T / s_i)^α where s_i > T         t_i the round i was last asked in
    S = ⌊ε_t K⌋ of those never heard from, drawn in proportion to speed 1 / s_i, and the rest of K from the others:
        drawn in proportion to Util_i from those with Util_i ≥ 95 % of the last one that would make it
    ε_t = max(ε · decay^(t−1), least)

s_i are the seconds that the fleet's clock says the round's work would take client i, transfers included. Without
preferred_seconds there is no T: speed does not count, and exploration is even. When one kind of client runs out, the
other fills the cohort.

Reduces to: uniform selection until somebody has been heard from, when speed does not count.
Differs from the paper: U_i is n_i times the mean loss, a lower bound of |B|√(mean loss²) and equal to it when the
samples' losses are equal; T is fixed (no pacer), and nobody is barred for having been asked often; s_i is what the
clock expects now, where the paper takes what was last observed.
Reference: Lai, Zhu, Madhyastha, Chowdhury. Oort: efficient federated learning via guided participant selection. OSDI
2021. arXiv:2010.06081.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Expected, Steps
from turnout.selection.candidates import successive
from turnout.settings import GIVEN, Clients, NonNegative, Positive, Share, When, rule

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


@rule("selection")
class Oort:
    """Clients by utility: loss times data, less slowness."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K
    exploration: Share = 0.9  # ε: the share of K for clients never heard from, at first
    exploration_decay: Share = 0.98  # its factor a round
    least_exploration: Share = 0.2  # where it stops falling
    preferred_seconds: Positive | None = None  # T: what a round may take a client before its worth falls; needs a clock
    slow_penalty: Annotated[NonNegative, When(preferred_seconds=GIVEN)] = 2.0  # α

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why speed cannot count."""
        if self.preferred_seconds is not None and plan.fleet.clock is None:
            yield (
                "how long clients take is for a clock to say, and this fleet has none. "
                "Change selection.preferred_seconds: leave it out, and clients count by utility alone; or set "
                'fleet.clock, for example { use = "deadline" }.'
            )

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return some clients never heard from and the most useful of the others."""
        seconds = yield from self._seconds_of(pool, ask)
        heard = ~np.isnan(view.last_losses[pool])
        known, unknown = pool[heard], pool[~heard]
        size = min(self.cohort_size, len(pool))
        explore = min(int(self.exploration_at(view.round) * self.cohort_size + 1e-9), size, len(unknown))
        exploit = min(size - explore, len(known))
        new = successive(unknown, 1 / seconds[~heard], size - exploit, view, "exploration")
        clients = np.union1d(new, self._useful(known, seconds[heard], exploit, view))
        return Choice(
            clients=clients,
            multiplicity=np.ones(len(clients), dtype=np.int64),
            memory={"last_round": self._asked_at(clients, view)},
        )

    def exploration_at(self, round: int) -> float:
        """Return ε_t."""
        return max(self.exploration * self.exploration_decay ** (round - 1), self.least_exploration)

    def utility(self, clients: Ids, seconds: Floats, view: View) -> Floats:
        """Return Util_i of clients that have been heard from, which take so many seconds."""
        asked = view.memory["last_round"][clients] if "last_round" in view.memory else np.ones(len(clients))
        doubt = np.sqrt(DOUBT * np.log(view.round) / np.maximum(asked, 1))
        worth = statistical_utility(view.population.sizes[clients], view.last_losses[clients])
        slow = slowness(seconds, self.preferred_seconds or 1.0, self.slow_penalty)
        return np.asarray((worth + doubt) * slow)

    def _useful(self, known: Ids, seconds: Floats, size: int, view: View) -> Ids:
        if size == 0:
            return known[:0]
        utility = self.utility(known, seconds, view)
        may = admitted(utility, size)
        return successive(known[may], utility[may], size, view, "selection")

    def _seconds_of(self, clients: Ids, ask: Ask) -> Steps[Floats]:
        """Return s_i; all alike where speed does not count, or the world does not know it."""
        if self.preferred_seconds is None:
            return np.ones(len(clients))
        expected: Expected = yield ask.expected(clients)
        return np.ones(len(clients)) if expected.seconds is None else expected.seconds

    def _asked_at(self, clients: Ids, view: View) -> Ids:
        """Return the round each client was last asked in, 0 for never."""
        asked: Ids = view.memory.get("last_round", np.zeros(view.population.num_clients, dtype=np.int64)).copy()
        asked[clients] = view.round
        return asked
