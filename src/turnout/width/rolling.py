"""Rolling widths (FedRolex): a client trains a window of ⌈r d⌉ units that moves on by one in every round.

Intuition: with nested widths the last units are trained by the largest devices alone; a moving window lets everyone
train every unit in turn, and the model may be larger than any device can train.

    U_{i,l} = { (t − 1 + k) mod d_l : k = 0, …, ⌈r_i d_l⌉ − 1 }    in round t

Reduces to: nested widths when the window does not move, as in round 1.
Differs from the paper: its code moves the window backwards, and weighs biases, norms and the rows of the head by how
often they were trained so far; here all parameters are weighed alike.
Reference: Alam, Liu, Yan, Zhang. NeurIPS 2022. arXiv:2212.01548.
"""

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import CountOrZero, rule
from turnout.width.rates import Rates, count_of


def window(size: int, count: int, offset: int) -> Ids:
    """Return so many units from an offset on, around the end, in ascending order."""
    return np.sort((offset + np.arange(count)) % size)


@rule("width")
class Rolling(Rates):
    """A window of units that moves with the rounds."""

    stride: CountOrZero = 1  # units by which the window moves on in each round, 0 or more; 1 is usual, 0 is nested

    def units(self, group: int, size: int, rate: float, clients: Ids, view: View) -> Ids:
        """Return the window of this round."""
        return window(size, count_of(rate, size), (view.round - 1) * self.stride)
