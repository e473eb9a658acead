"""Multi-Krum: average the client updates that are closest to their neighbours.

Intuition: Krum discards all honest updates but one; averaging the updates with the best scores keeps most of them.

    score_i = Σ ‖Δ_i − Δ_j‖²  over the n − f − 2 draws j ≠ i nearest to i
    u = (1/m) Σ Δ_i  over the m draws with the lowest scores        ties go to the lowest client id

Every draw has one vote, whatever its p_i, and f counts draws. The guarantee needs n ≥ 2f + 3. A study with a smaller
cohort is rejected. A round with fewer updates tolerates as many attackers as it can, f = max(0, ⌊(n−3)/2⌋), and records
this number as the metric attackers_tolerated. At most n − f draws are averaged.

Reduces to: Krum when m = 1; FedAvg with weighting = "mean" when f = 0 and m = n.
Differs from the paper: scores are computed once, not again after each pick; m is n − f by default.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

import numpy as np

from turnout.aggregation.krum import best_draws, tolerable_attackers
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows, as_tensor
from turnout.settings import Count, CountOrZero, rule


@rule("aggregation")
class MultiKrum:
    """The mean of the updates nearest to their neighbours."""

    # largest number f of malicious draws to tolerate, 0 to (cohort_size − 3) / 2; set it to the number you expect
    num_attackers: CountOrZero = 1
    # number m of draws to average, 1 to n − f; none averages n − f of the n draws, which is usual
    num_kept: Count | None = None

    @property
    def least_cohort_size(self) -> int:
        """The number of draws 2f + 3 that the guarantee needs."""
        return 2 * self.num_attackers + 3

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the mean of the draws with the best scores."""
        draws = rows.facts.num_draws
        attackers = tolerable_attackers(draws, self.num_attackers)
        most = draws - attackers
        num_kept = most if self.num_kept is None else min(self.num_kept, most)  # m
        best_rows = best_draws(rows, attackers)[:num_kept]
        coefficients = np.bincount(best_rows, minlength=len(rows.facts)) / num_kept
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"attackers_tolerated": float(attackers), "kept": float(num_kept)}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
