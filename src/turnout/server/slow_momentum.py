"""Slow momentum: server momentum kept in units of gradients, so that it outlives a change of the local rate.

Intuition: after the clients' rate is halved, yesterday's momentum must push half as hard as well.

    b ← β·b + u/η_l                            (b = u/η_l at the first round)
    x ← x − η_g·η_l·b

η_l is the rate of this round's clients. Where their rates differ it is their mean, weighted by p_i and by how often
each was drawn: the fresh direction u is passed on whole whatever η_l is, and only the pace at which the past is
replayed depends on it.

Reduces to: FedAvgM when the local rate never changes; server SGD when β = 0.
Reference: Wang, Tantia, Ballas, Rabbat. SlowMo. ICLR 2020. arXiv:1910.00643; "gmf" in FedNova's code.
"""

from typing import ClassVar

import numpy as np
from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Facts, Step
from turnout.settings import Positive, ShareBelowOne, rule


def common_rate(facts: Facts) -> float:
    """Return η_l: the clients' rate, or the mean of their rates by weight and draws."""
    share = facts.weights * facts.multiplicity
    return float(np.average(facts.local_lr, weights=share if share.sum() > 0 else None))


def slowly_rolled(buffer: Tensor | None, direction: Tensor, momentum: float, local_lr: float) -> Tensor:
    """Return β·b + u/η_l; a buffer that is not there yet counts as zero."""
    fresh = direction / local_lr
    return fresh if buffer is None else fresh.add_(buffer, alpha=momentum)


@rule("server")
class SlowMomentum:
    """Server momentum that follows the clients' learning-rate schedule."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 1.0  # η_g
    momentum: ShareBelowOne = 0.9  # β

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g η_l b and the new b."""
        local_lr = common_rate(step.facts)  # η_l
        buffer = slowly_rolled(memory.get("buffer"), step.direction, self.momentum, local_lr)  # b
        return Moved(model.sub(buffer, alpha=self.lr * local_lr), {"buffer": buffer})
