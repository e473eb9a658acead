"""Trimmed mean: in every coordinate, drop the largest and the smallest values and average the rest.

Intuition: an attacker that sends an extreme value in a coordinate is the first to be dropped there.

    k = ⌊fraction·n⌋          n draws, Δ_(1) ≤ … ≤ Δ_(n) in each coordinate
    u = Σ_{k < j ≤ n−k} Δ_(j) / (n − 2k)

Every draw has one vote, whatever its p_i, because an attacker could claim any weight. A client drawn twice votes twice.
The recorded coefficient is a client's share in the mean, averaged over the coordinates; clients with equal values have
equal shares. With n < 1/fraction draws no value can be dropped, and the metric cut_each_side is 0.

Reduces to: FedAvg with weighting = "mean" when fraction = 0; the coordinate median as fraction → ½.
Reference: Yin, Chen, Ramchandran, Bartlett. ICML 2018. arXiv:1803.01498.
"""

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows
from turnout.settings import Range, rule

VALUES_AT_ONCE = 1 << 22  # values sorted at a time, to limit memory


def middle_mean(delta: Tensor, multiplicity: Ids, cut: int) -> tuple[Tensor, Floats]:
    """Return each coordinate's mean without the `cut` lowest and highest draws, and every client's mean share."""
    votes = torch.from_numpy(multiplicity).to(delta.device)
    num_middle = int(votes.sum()) - 2 * cut
    size, width = delta.shape[1], max(1, VALUES_AT_ONCE // int(votes.sum()))
    direction, shares = delta.new_empty(size), torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
    for first in range(0, size, width):
        columns = delta[:, first : first + width].t()  # one row per coordinate
        ordered = columns.repeat_interleave(votes, dim=1).sort(dim=1).values
        middle = ordered[:, cut : cut + num_middle]
        direction[first : first + width] = middle.mean(dim=1)
        shares += (middle_share(columns, ordered, middle) * votes).sum(dim=0)
    return direction, (shares / (max(size, 1) * num_middle)).cpu().numpy()


def middle_share(columns: Tensor, ordered: Tensor, middle: Tensor) -> Tensor:
    """Return the share of one draw of each client in the middle, 0 to 1; draws of equal value have equal shares."""
    lowest, highest = middle[:, :1], middle[:, -1:]
    inside = ((columns > lowest) & (columns < highest)).double()
    for edge in (lowest, highest):
        share = (middle == edge).sum(1, keepdim=True).double() / (ordered == edge).sum(1, keepdim=True)
        inside = torch.where(columns == edge, share, inside)
    return inside


@rule("aggregation")
class TrimmedMean:
    """Average the middle of every coordinate."""

    is_weighted_sum: ClassVar[bool] = False  # the coefficients differ from coordinate to coordinate
    # fraction of the draws to drop at each end, 0 to below 0.5; at least the expected fraction of attackers, and 0.1 to
    # 0.2 is usual
    fraction: Annotated[float, Range(least=0, below=0.5)] = 0.1

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the trimmed mean of every coordinate."""
        draws = rows.facts.num_draws
        cut = min(int(self.fraction * draws + 1e-9), (draws - 1) // 2)  # k; 1e-9 makes 0.29 · 100 round down to 29
        direction, shares = middle_mean(rows.delta, rows.facts.multiplicity, cut)
        return Combined(direction=direction, coefficients=shares, metrics={"cut_each_side": float(cut)})
