"""Nested widths (HeteroFL): a client of rate r trains the first ⌈r d⌉ units of every hidden layer of d units.

Intuition: a small model is the corner of a larger one, so that all devices train one model, each as much as it can.

    U_{i,l} = {0, …, ⌈r_i d_l⌉ − 1},    u_j = Σ_i c_i m_ij Δ_ij / Σ_i c_i m_ij    (0 where nobody trains j)

m_ij is 1 where client i trains parameter j: where both units that it connects are in U_i. With the scaler, the outputs
of a layer with k of its d units are divided by k / d in training. With masked labels, the logits of labels that client
i does not hold are 0 in training (not −∞), and m_ij is 0 for their rows of the last layer.

Reduces to: FedAvg when every rate is 1; masked labels change nothing for clients that hold every label.
Differs from the paper: the scaler and masked labels are choices, and normalisation layers have no running statistics
(GroupNorm in place of static BatchNorm). The weights c_i are the aggregation's; the paper has c_i = 1.
Reference: Diao, Ding, Tarokh. ICLR 2021. arXiv:2010.01264.
"""

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import rule
from turnout.width.rates import Rates, count_of


@rule("width")
class Nested(Rates):
    """The first units of every hidden layer."""

    # divide the outputs of cut linear and convolutional layers by the share of their units that is there, in training
    # only: activations then are as large as in the whole model; usual in the paper, off here
    scaler: bool = False

    @property
    def usable_rates(self) -> tuple[float, ...]:
        """The rates below 1: the first units are a model of their own, whose loss and accuracy are measured."""
        return tuple(sorted({rate for rate in self.rates if rate < 1}))

    def units(self, group: int, size: int, rate: float, clients: Ids, view: View) -> Ids:
        """Return the first units."""
        return np.arange(count_of(rate, size))
