"""Slow momentum: server momentum in units of gradients, so that it stays valid when the local learning rate changes.

Intuition: when the clients halve their learning rate, the stored momentum must also have half its effect.

    b ← β·b + u/η_l                            (b = u/η_l in the first round)
    x ← x − η_g·η_l·b

η_l is the local learning rate of this round. If it differs between clients, the rule takes its mean, weighted by p_i
and by the number of draws. The new direction u has the same effect whatever η_l is; η_l only scales the effect of past
directions.

Reduces to: FedAvgM when the local learning rate never changes; server SGD when β = 0.
Reference: Wang, Tantia, Ballas, Rabbat. SlowMo. ICLR 2020. arXiv:1910.00643; "gmf" in FedNova's code.
"""

from typing import ClassVar

import numpy as np
from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Facts, Step
from turnout.settings import Positive, ShareBelowOne, rule


def mean_local_lr(facts: Facts) -> float:
    """Return η_l: the mean local learning rate, weighted by p_i and the number of draws."""
    share = facts.weights * facts.multiplicity
    return float(np.average(facts.local_lr, weights=share if share.sum() > 0 else None))


def next_buffer(buffer: Tensor | None, direction: Tensor, momentum: float, local_lr: float) -> Tensor:
    """Return β·b + u/η_l, or u/η_l in the first round."""
    gradient = direction / local_lr
    return gradient if buffer is None else gradient.add_(buffer, alpha=momentum)


@rule("server")
class SlowMomentum:
    """Server momentum that follows the clients' learning-rate schedule."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 1.0  # server learning rate η_g, greater than 0; 0.1 to 1 is usual
    momentum: ShareBelowOne = 0.9  # momentum β of the server, 0 to below 1; 0 is server SGD, 0.9 is usual

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g η_l b and the new b."""
        local_lr = mean_local_lr(step.facts)  # η_l
        buffer = next_buffer(memory.get("buffer"), step.direction, self.momentum, local_lr)  # b
        return Moved(model.sub(buffer, alpha=self.lr * local_lr), {"buffer": buffer})
