"""Ordered widths (FjORD): as nested widths, and at every local step a client draws a rate up to its own.

Intuition: training the first units also alone makes them the most important ones, so that a narrow model is good
without having been trained alone.

    p ~ uniform on { r ∈ rates : r ≤ r_i } at each local step;    U = {0, …, ⌈p d_l⌉ − 1} in that step

With self-distillation, a step is one on the client's own width, and the narrower part learns from its predictions,
which count as constants. At p = r_i the second term has no gradient, and is left out:

    loss = CE(f_{r_i}, y) + CE(f_p, softmax(f_{r_i}))

Reduces to: FedAvg when the only rate is 1, and nested widths when every client has the smallest rate.
As in the paper, a parameter counts as trained by every client whose own rate covers it, whichever rates it drew.
Differs from the paper: self-distillation is a choice, and local steps are without momentum.
Reference: Horváth, Laskaridis, Almeida, Leontiadis, Venieris, Lane. NeurIPS 2021. arXiv:2102.13451.
"""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import rule
from turnout.width.rates import Rates, count_of


@rule("width")
class Ordered(Rates):
    """The first units of every hidden layer, as many as a rate drawn at each local step says."""

    # train the narrower part of a step on the predictions of the client's own width (self-distillation), which is
    # trained on the labels in the same step; a step then costs the work of both
    distil: bool = False

    def __post_init__(self) -> None:
        Rates.__post_init__(self)
        if self.distil and self.mask_labels:
            raise ConfigError(
                "Ordered needs distil = false where labels are masked: a narrow part cannot learn predictions that are "
                "masked. Set width.mask_labels = false, or width.distil = false.",
                setting="width.distil",
            )

    @property
    def usable_rates(self) -> tuple[float, ...]:
        """The rates below 1: the first units are a model of their own, whose loss and accuracy are measured."""
        return tuple(sorted({rate for rate in self.rates if rate < 1}))

    def units(self, group: int, size: int, rate: float, clients: Ids, view: View) -> Ids:
        """Return the first units."""
        return np.arange(count_of(rate, size))

    def step_rates(self, clients: Ids, rates: Floats, steps: int, view: View) -> Floats:
        """Return the rate of each client at each local step, (clients, steps)."""
        choices = np.unique(self.rates)
        allowed = np.searchsorted(choices, rates, side="right")  # number of rates up to the client's own
        draw = view.streams.uniforms("width steps", view.round, clients, steps)
        return np.asarray(choices[(draw * allowed[:, None]).astype(np.int64)])
