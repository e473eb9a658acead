"""Coordinate median: in every coordinate, the value in the middle.

Intuition: as long as fewer than half of the clients lie, the middle value is bounded by honest ones.

    u_j = median over draws of Δ_{i,j}          of an even number: the mean of the middle two

Every draw has one vote, whatever p_i: weights that clients claim are what an attacker would claim. A client drawn
twice votes twice. The coefficient on record is a client's share in the median, averaged over the coordinates;
clients with equal values share alike.

Reduces to: FedAvg with weighting = "mean" when one or two clients answer.
Reference: Yin, Chen, Ramchandran, Bartlett. ICML 2018. arXiv:1803.01498.
"""

from typing import ClassVar

from turnout.aggregation.trimmed_mean import middle_mean
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows
from turnout.settings import rule


@rule("aggregation")
class Median:
    """The middle of every coordinate. No settings."""

    is_weighted_sum: ClassVar[bool] = False  # each coordinate has coefficients of its own

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the median of every coordinate: all is cut but the middle one or two."""
        facts = rows.facts
        direction, shares = middle_mean(rows.delta, facts.multiplicity, (facts.num_draws - 1) // 2)
        return Combined(direction=direction, coefficients=shares)
