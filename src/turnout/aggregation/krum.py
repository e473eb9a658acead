"""Krum: follow the one client whose change lies closest to its neighbours'.

Intuition: honest clients lie close together; an attacker far from them has no near neighbours.

    score_i = Σ ‖Δ_i − Δ_j‖²  over the n − f − 2 draws j ≠ i nearest to i
    u = Δ_k,  k = argmin_i score_i              ties go to the lowest client

Every draw has one vote, whatever p_i, and f counts draws. The guarantee needs n ≥ 2f + 3. A study that asks for
fewer is refused; a round in which fewer answer guards against as many as it can, f = max(0, ⌊(n−3)/2⌋), and records
it as attackers_tolerated. Of two answers, or one, the lowest client's is taken.

Reduces to: FedAvg when one client answers, or all agree.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows
from turnout.settings import CountOrZero, rule

COLUMNS_AT_ONCE = 1 << 16  # widened to float64 in one go, to bound memory


def square_distances(delta: Tensor) -> Floats:
    """Return ‖Δ_i − Δ_j‖² of every two rows, by differences: products would let one huge row drown all others."""
    found = torch.zeros(len(delta), len(delta), dtype=torch.float64, device=delta.device)
    for first in range(0, delta.shape[1], COLUMNS_AT_ONCE):
        part = delta[:, first : first + COLUMNS_AT_ONCE].double()
        found += torch.cdist(part, part, compute_mode="donot_use_mm_for_euclid_dist").square_()
    return np.asarray(found.cpu().numpy())


def neighbour_scores(distances: Floats, neighbours: int) -> Floats:
    """Return the sum of each row's smallest distances to others."""
    others = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    return np.asarray(np.sort(others, axis=1)[:, : min(neighbours, len(distances) - 1)].sum(1))


def tolerated(draws: int, num_attackers: int) -> int:
    """Return how many attackers so many draws can guard against, at most as many as asked."""
    return min(num_attackers, max(0, (draws - 3) // 2))


def best_draws(rows: Rows, num_attackers: int) -> Ids:
    """Return the row of each draw, best score first."""
    of_row = np.repeat(np.arange(len(rows.facts)), rows.facts.multiplicity)
    distances = square_distances(rows.delta)[np.ix_(of_row, of_row)]
    scores = neighbour_scores(distances, max(1, len(of_row) - num_attackers - 2))
    return np.asarray(of_row[np.argsort(scores, kind="stable")])


def too_few(plan: Any, num_attackers: int) -> Iterator[str]:
    """Yield why a cohort is too small to guard against so many."""
    asked, needed = plan.selection.cohort_size, 2 * num_attackers + 3
    if asked is not None and asked < needed:
        yield (
            f"guarding against num_attackers = {num_attackers} needs cohort_size >= {needed}; got {asked}. "
            f"Set selection.cohort_size to {needed} or more, or lower aggregation.num_attackers."
        )


@rule("aggregation")
class Krum:
    """The change nearest to its neighbours."""

    num_attackers: CountOrZero = 1  # f, counted in draws

    def objections(self, plan: Any) -> Iterator[str]:
        """Refuse a cohort that is too small for the guarantee."""
        yield from too_few(plan, self.num_attackers)

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the row with the best score, with coefficient 1."""
        attackers = tolerated(rows.facts.num_draws, self.num_attackers)
        chosen = int(best_draws(rows, attackers)[0])
        coefficients = np.zeros(len(rows.facts))
        coefficients[chosen] = 1.0
        metrics = {"attackers_tolerated": float(attackers)}
        return Combined(direction=rows.delta[chosen].clone(), coefficients=coefficients, metrics=metrics)
