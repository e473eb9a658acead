"""Krum: follow the one client update that is closest to its neighbours.

Intuition: honest updates are close together; an attacker's update far from them has no close neighbours.

    score_i = Σ ‖Δ_i − Δ_j‖²  over the n − f − 2 draws j ≠ i nearest to i
    u = Δ_k,  k = argmin_i score_i              ties go to the lowest client id

Every draw has one vote, whatever its p_i, and f counts draws. The guarantee needs n ≥ 2f + 3. A study with a smaller
cohort is rejected. A round with fewer updates tolerates as many attackers as it can, f = max(0, ⌊(n−3)/2⌋), and records
this number as the metric attackers_tolerated. With one or two updates the rule takes that of the lowest client id.

Reduces to: FedAvg when one client returns an update, or all updates are equal.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows
from turnout.settings import CountOrZero, rule

COLUMNS_AT_ONCE = 1 << 16  # columns converted to float64 at a time, to limit memory


def square_distances(delta: Tensor) -> Floats:
    """Return ‖Δ_i − Δ_j‖² of all pairs, from differences: inner products lose precision if one row is huge."""
    squares = torch.zeros(len(delta), len(delta), dtype=torch.float64, device=delta.device)
    for first in range(0, delta.shape[1], COLUMNS_AT_ONCE):
        part = delta[:, first : first + COLUMNS_AT_ONCE].double()
        squares += torch.cdist(part, part, compute_mode="donot_use_mm_for_euclid_dist").square_()
    return np.asarray(squares.cpu().numpy())


def neighbour_scores(distances: Floats, neighbours: int) -> Floats:
    """Return the sum of each row's smallest distances to other rows."""
    others = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    return np.asarray(np.sort(others, axis=1)[:, : min(neighbours, len(distances) - 1)].sum(1))


def tolerable_attackers(draws: int, num_attackers: int) -> int:
    """Return the number of attackers that this many draws can tolerate, at most `num_attackers`."""
    return min(num_attackers, max(0, (draws - 3) // 2))


def best_draws(rows: Rows, num_attackers: int) -> Ids:
    """Return the row of each draw, sorted by score with the best first."""
    row_of_draw = np.repeat(np.arange(len(rows.facts)), rows.facts.multiplicity)
    distances = square_distances(rows.delta)[np.ix_(row_of_draw, row_of_draw)]
    scores = neighbour_scores(distances, max(1, len(row_of_draw) - num_attackers - 2))
    return np.asarray(row_of_draw[np.argsort(scores, kind="stable")])


@rule("aggregation")
class Krum:
    """The update nearest to its neighbours."""

    # largest number f of malicious draws to tolerate, 0 to (cohort_size − 3) / 2; set it to the number you expect
    num_attackers: CountOrZero = 1

    @property
    def least_cohort_size(self) -> int:
        """The number of draws 2f + 3 that the guarantee needs."""
        return 2 * self.num_attackers + 3

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the update with the best score, with coefficient 1."""
        attackers = tolerable_attackers(rows.facts.num_draws, self.num_attackers)
        chosen = int(best_draws(rows, attackers)[0])
        coefficients = np.zeros(len(rows.facts))
        coefficients[chosen] = 1.0
        metrics = {"attackers_tolerated": float(attackers)}
        return Combined(direction=rows.delta[chosen].clone(), coefficients=coefficients, metrics=metrics)
