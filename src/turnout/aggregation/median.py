"""Coordinate median: in every coordinate, the middle value of the client updates.

Intuition: as long as fewer than half of the clients are malicious, honest values bound the middle value.

    u_j = median over draws of Δ_{i,j}          of an even number: the mean of the middle two

Every draw has one vote, whatever its p_i, because an attacker could claim any weight. A client drawn twice votes twice.
The recorded coefficient is a client's share in the median, averaged over the coordinates; clients with equal values
have equal shares.

Reduces to: FedAvg with weighting = "mean" when one or two clients return an update.
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

    is_weighted_sum: ClassVar[bool] = False  # the coefficients differ from coordinate to coordinate

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the median of every coordinate, as a trimmed mean that keeps only the middle one or two values."""
        facts = rows.facts
        direction, shares = middle_mean(rows.delta, facts.multiplicity, (facts.num_draws - 1) // 2)
        return Combined(direction=direction, coefficients=shares)
