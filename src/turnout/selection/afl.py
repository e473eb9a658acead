"""AFL: active federated learning samples clients by a softmax of their last loss, and some uniformly.

Intuition: prefer clients with a high loss, but continue to explore the others.

    v_i = L_i, the mean training loss in client i's last round (√n_i · L_i if scaled); −∞ if it never took part
    V   = the pool without the ⌊(1 − kept_share)·|A_t|⌋ smallest v
    S   = ⌊(1 − ε)K⌋ clients of V, sampled without replacement in proportion to exp(α v_i), and the rest of K
          uniformly from all other available clients

Reduces to: uniform selection when exploration = 1, and until some client has a loss.
Differs from the paper: the values are L_i unless scaled, as in the paper on power-of-choice, which uses this rule as a
baseline. A value that is cut in one round is not lost in the next. If V is too small, the rest is sampled uniformly.
Reference: Goetz, Malik, Bui, Moon, Liu, Kumar. Active federated learning. 2019. arXiv:1909.12641.
"""

from typing import ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.selection.sampling import choice_of, weighted_sample
from turnout.settings import Clients, NonNegative, Share, rule


def most_valued(clients: Ids, values: Floats, kept_share: float) -> tuple[Ids, Floats]:
    """Return the clients without the smallest values, and their values; a value of −∞ is always dropped."""
    cut = int((1 - kept_share) * len(clients) + 1e-9)  # ⌊·⌋; 1e-9 absorbs rounding, so that 0.75 · 4 is 3
    order = np.sort(np.lexsort((-clients, values))[cut:])  # ties: the lowest id is kept
    order = order[np.isfinite(values[order])]
    return clients[order], values[order]


@rule("selection")
class AFL:
    """Clients by a softmax of their last loss, and some uniformly."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    # share of the available clients with the largest values that the softmax samples from, 0 to 1; 0.25 is usual
    kept_share: Share = 0.25
    sharpness: NonNegative = 0.01  # inverse temperature α of the softmax, 0 or more; 0 is uniform, 0.01 is usual
    exploration: Share = 0.1  # share ε of the cohort that is sampled uniformly, 0 to 1; 0.1 is usual
    scaled: bool = False  # values are √n_i times the loss, as in the paper (true), or the loss itself (false)

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return clients sampled by value, and the rest of the cohort sampled uniformly."""
        if len(pool) <= self.cohort_size:
            return choice_of(pool)
        last = view.last_losses[pool]
        scale = np.sqrt(view.population.sizes[pool]) if self.scaled else 1.0
        clients, values = most_valued(pool, np.where(np.isnan(last), -np.inf, scale * last), self.kept_share)
        num_by_value = int((1 - self.exploration) * self.cohort_size + 1e-9)
        shares = np.exp(self.sharpness * (values - values.max(initial=-np.inf)))
        by_value = weighted_sample(clients, shares, num_by_value, view, "selection")
        others = np.setdiff1d(pool, by_value, assume_unique=True)
        num_uniform = self.cohort_size - len(by_value)
        uniform = weighted_sample(others, np.ones(len(others)), num_uniform, view, "exploration")
        return choice_of(np.union1d(by_value, uniform))
