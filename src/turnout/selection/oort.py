"""Oort: prefer clients with a high loss that do not delay the round, and explore new clients.

Intuition: a client's utility is its loss times its data, reduced if the others have to wait for it.

    U_i = n_i · L_i, with L_i the mean training loss in i's last round; clipped at the 95 % quantile, scaled to ≤ 1
    Util_i = (U_i + √(0.1 ln t / t_i)) · (T / s_i)^α if s_i > T         t_i: the round in which i was last selected
    S = ⌊ε_t K⌋ clients that never took part, sampled in proportion to speed 1 / s_i, and the rest of K sampled in
        proportion to Util_i from the other clients with Util_i ≥ 95 % of the smallest utility that would be selected
    ε_t = max(ε · decay^(t−1), least)

s_i is the time that the fleet's clock predicts for client i's work in this round, transfers included. Without
preferred_seconds there is no T: speed has no effect, and exploration is uniform. If there are too few clients of one
kind, the other kind fills the cohort.

Reduces to: uniform selection until some client has a loss, if speed has no effect.
Differs from the paper: U_i is n_i times the mean loss, a lower bound of |B|√(mean loss²) and equal to it if all samples
have the same loss. T is fixed (no pacer). No client is excluded for having been selected often. s_i is the clock's
prediction for this round; the paper uses the last observed duration.
Reference: Lai, Zhu, Madhyastha, Chowdhury. Oort: efficient federated learning via guided participant selection. OSDI
2021. arXiv:2010.06081.
"""

from typing import Annotated, ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Expected, Steps
from turnout.selection.sampling import weighted_sample
from turnout.settings import GIVEN, Clients, NonNegative, Positive, Share, When, rule

CLIP_QUANTILE = 0.95  # utilities are clipped at this quantile
CUT_OFF = 0.95  # a client is eligible with this share of the smallest utility that would be selected
UNCERTAINTY = 0.1  # weight of the bonus for clients that were not selected for long


def statistical_utility(num_examples: Ids, losses: Floats) -> Floats:
    """Return n_i L_i, clipped and scaled to at most 1; all ones if no client has a positive loss."""
    utility = num_examples * np.maximum(losses, 0)
    finite = utility[np.isfinite(utility)]
    top = np.quantile(finite, CLIP_QUANTILE) if len(finite) else 0.0
    return np.asarray(np.minimum(utility, top) / top if top > 0 else np.ones(len(utility)))


def speed_factor(seconds: Floats, preferred_seconds: float, penalty: float) -> Floats:
    """Return (T / s_i)^α for clients slower than T, and 1 for the others."""
    return np.minimum(preferred_seconds / seconds, 1.0) ** penalty


def eligible_positions(utility: Floats, size: int) -> Ids:
    """Return the positions whose utility is at least 95 % of the size-th largest."""
    last = np.sort(utility)[-size]
    return np.flatnonzero(utility >= CUT_OFF * last)


@rule("selection")
class Oort:
    """Clients by utility: loss times data, reduced for slow clients."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    exploration: Share = 0.9  # initial share ε of the cohort for clients that never took part, 0 to 1; 0.9 is usual
    exploration_decay: Share = 0.98  # factor on ε per round, 0 to 1; 0.98 is usual
    least_exploration: Share = 0.2  # smallest value of ε, 0 to 1; 0.2 is usual
    # duration T of a client's round in seconds above which its utility is reduced, greater than 0, needs fleet.clock;
    # none ignores speed
    preferred_seconds: Positive | None = None
    # exponent α of the reduction for slow clients, 0 or more; 0 is none, 2 is usual
    slow_penalty: Annotated[NonNegative, When(preferred_seconds=GIVEN)] = 2.0

    @property
    def needs_seconds(self) -> bool:
        """Whether the duration of a client's round has an effect."""
        return self.preferred_seconds is not None

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return some clients that never took part and the most useful of the others."""
        seconds = yield from self._seconds_of(pool, ask)
        has_loss = ~np.isnan(view.last_losses[pool])
        known, unknown = pool[has_loss], pool[~has_loss]
        size = min(self.cohort_size, len(pool))
        num_explore = min(int(self.exploration_at(view.round) * self.cohort_size + 1e-9), size, len(unknown))
        num_exploit = min(size - num_explore, len(known))
        new = weighted_sample(unknown, 1 / seconds[~has_loss], size - num_exploit, view, "exploration")
        clients = np.union1d(new, self._useful(known, seconds[has_loss], num_exploit, view))
        return Choice(
            clients=clients,
            multiplicity=np.ones(len(clients), dtype=np.int64),
            memory={"last_round": self._last_rounds(clients, view)},
        )

    def exploration_at(self, round: int) -> float:
        """Return ε_t."""
        return max(self.exploration * self.exploration_decay ** (round - 1), self.least_exploration)

    def utility(self, clients: Ids, seconds: Floats, view: View) -> Floats:
        """Return Util_i of clients that have taken part and take so many seconds."""
        last_rounds = view.memory["last_round"][clients] if "last_round" in view.memory else np.ones(len(clients))
        bonus = np.sqrt(UNCERTAINTY * np.log(view.round) / np.maximum(last_rounds, 1))
        utility = statistical_utility(view.population.sizes[clients], view.last_losses[clients])
        factor = speed_factor(seconds, self.preferred_seconds or 1.0, self.slow_penalty)
        return np.asarray((utility + bonus) * factor)

    def _useful(self, known: Ids, seconds: Floats, size: int, view: View) -> Ids:
        if size == 0:
            return known[:0]
        utility = self.utility(known, seconds, view)
        eligible = eligible_positions(utility, size)
        return weighted_sample(known[eligible], utility[eligible], size, view, "selection")

    def _seconds_of(self, clients: Ids, ask: Ask) -> Steps[Floats]:
        """Return s_i; all ones if speed has no effect, or the world does not know it."""
        if self.preferred_seconds is None or not len(clients):
            return np.ones(len(clients))
        expected: Expected = yield ask.expected(clients)
        return np.ones(len(clients)) if expected.seconds is None else expected.seconds

    def _last_rounds(self, clients: Ids, view: View) -> Ids:
        """Return the round in which each client was last selected, 0 for never."""
        rounds: Ids = view.memory.get("last_round", np.zeros(view.population.num_clients, dtype=np.int64)).copy()
        rounds[clients] = view.round
        return rounds
