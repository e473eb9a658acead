"""Multi-Krum: average the clients whose changes lie closest to their neighbours'.

Intuition: Krum throws away all honest clients but one; averaging the best-placed keeps most of them.

    score_i = Σ ‖Δ_i − Δ_j‖²  over the n − f − 2 draws j ≠ i nearest to i
    u = (1/m) Σ Δ_i  over the m draws with the lowest scores        ties go to the lowest client

Every draw has one vote, whatever p_i, and f counts draws. The guarantee needs n ≥ 2f + 3. A study that asks for
fewer is refused; a round in which fewer answer guards against as many as it can, f = max(0, ⌊(n−3)/2⌋), and records
it as attackers_tolerated. At most n − f draws are kept.

Reduces to: Krum when m = 1; FedAvg with weighting = "mean" when f = 0 and m = n.
Differs from the paper: scores are computed once, not again after each pick; m is n − f unless given.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from turnout.aggregation.krum import best_draws, tolerated, too_few
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Rows
from turnout.settings import Count, CountOrZero, rule


@rule("aggregation")
class MultiKrum:
    """The mean of the changes nearest to their neighbours."""

    num_attackers: CountOrZero = 1  # f, counted in draws
    num_kept: Count | None = None  # m; none keeps all but f

    def objections(self, plan: Any) -> Iterator[str]:
        """Refuse a cohort that is too small for the guarantee."""
        yield from too_few(plan, self.num_attackers)

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the mean of the draws with the best scores."""
        draws = rows.facts.num_draws
        attackers = tolerated(draws, self.num_attackers)
        most = draws - attackers
        kept = most if self.num_kept is None else min(self.num_kept, most)  # m
        chosen = best_draws(rows, attackers)[:kept]
        coefficients = np.bincount(chosen, minlength=len(rows.facts)) / kept
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"attackers_tolerated": float(attackers), "kept": float(kept)}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
