"""AFL: active federated learning draws clients by a softmax of their last loss, and a few evenly.

Intuition: prefer clients that were hard last time, but keep looking around.

    v_i = L_i, the mean training loss when i last took part (√n_i · L_i if scaled); −∞ if it never did
    kept: the pool without the ⌊(1 − share)·|A_t|⌋ smallest v
    S = ⌊(1 − ε)K⌋ of the kept, drawn without replacement in proportion to exp(α v_i), and the rest of K evenly
        from everyone else who is up

Reduces to: uniform selection when exploration = 1, and until somebody has been heard from.
Differs from the paper: the values are L_i unless scaled, as in power-of-choice's comparison, which calls this rule a
baseline; a value that was cut in one round is not forgotten in the next. Too few kept clients: the rest is drawn
evenly.
Reference: Goetz, Malik, Bui, Moon, Liu, Kumar. Active federated learning. 2019. arXiv:1909.12641.
"""

from typing import ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.selection.candidates import each_once, successive
from turnout.settings import Clients, NonNegative, Share, rule


def most_valued(clients: Ids, values: Floats, kept_share: float) -> tuple[Ids, Floats]:
    """Return the clients left when the smallest values are cut, and their values; −∞ is never kept."""
    cut = int((1 - kept_share) * len(clients) + 1e-9)  # ⌊·⌋, with 0.75 · 4 = 3 in floating point too
    order = np.sort(np.lexsort((-clients, values))[cut:])  # ties: the lowest id is kept
    order = order[np.isfinite(values[order])]
    return clients[order], values[order]


@rule("selection")
class AFL:
    """Clients by a softmax of their last loss, and a few evenly."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K
    kept_share: Share = 0.25  # of the pool, those with the largest values
    sharpness: NonNegative = 0.01  # α of the softmax
    exploration: Share = 0.1  # ε: the share of K that is drawn evenly
    scaled: bool = False  # values are √n_i times the loss, as in the paper

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return clients by value, and the rest of the cohort evenly."""
        if len(pool) <= self.cohort_size:
            return each_once(pool)
        last = view.last_losses[pool]
        scale = np.sqrt(view.population.sizes[pool]) if self.scaled else 1.0
        clients, values = most_valued(pool, np.where(np.isnan(last), -np.inf, scale * last), self.kept_share)
        wanted = int((1 - self.exploration) * self.cohort_size + 1e-9)
        shares = np.exp(self.sharpness * (values - values.max(initial=-np.inf)))
        valued = successive(clients, shares, wanted, view, "selection")
        others = np.setdiff1d(pool, valued, assume_unique=True)
        even = successive(others, np.ones(len(others)), self.cohort_size - len(valued), view, "exploration")
        return each_once(np.union1d(valued, even))
