"""AdaComm: many local steps at first, fewer as the loss falls.

Intuition: far from the optimum talking rarely costs little; near it, drift is what is left, so talk more often.

    paper   τ' = ⌈ τ₀ · √( (η_0/η_t) · F_t/F_0 ) ⌉
            τ ← τ' if τ' < τ, else max(1, ⌊γ·τ⌋)                  every R rounds
    paddle  τ ← ⌈ √( τ₀ · (η_0/η_t) · F_t/F_0 ) ⌉, between 1 and τ₀

F_t is the round's mean training loss and F_0 that of the first round heard from; η_t is the round's local rate and η_0
that of the same first round. The first round is never compared with itself.

Reduces to: τ₀ steps in every round until R rounds have passed; FedSGD when τ₀ = 1.
Differs from the paper: the loss is what clients report from training, so nothing is evaluated besides; intervals are
counted in rounds, not in seconds. The bound that the rule is derived from has (η_0/η_t)³ under the root; the first
power is used here, with which τ grows less when the rate is cut. The paddle variant is PaddlePaddle's rule, with τ₀ in
place of its limit of 16.
Reference: Wang, Joshi. Adaptive communication strategies. MLSys 2019. arXiv:1810.08313.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import UpdateError
from turnout.protocols import Memory, View
from turnout.settings import Count, Range, StepCount, When, rule

Variant = Literal["paper", "paddle"]


def fewer_steps(now: int, start: int, ratio: float, shrink: float) -> int:
    """Return the paper's next τ, given (η_0/η_t)·F_t/F_0; never more than now, never less than 1."""
    wanted = math.ceil(start * math.sqrt(ratio))  # τ'
    return max(1, wanted if wanted < now else math.floor(shrink * now))


def steps_by_loss(start: int, ratio: float) -> int:
    """Return PaddlePaddle's next τ, given (η_0/η_t)·F_t/F_0; it may rise again, up to τ₀."""
    return min(max(1, math.ceil(math.sqrt(start * ratio))), start)


@rule("local.effort")
class AdaComm:
    """A number of steps that follows the loss down."""

    start: StepCount  # τ₀
    every: Count = 10  # R: rounds between changes
    shrink: Annotated[float, Range(above=0, below=1), When(variant="paper")] = 0.5  # γ
    variant: Variant = "paper"  # which of the two forms above

    def steps(self, clients: Ids, view: View, per_epoch: Ids) -> Ids:
        """Return the same τ for every client."""
        return np.full(len(clients), view.memory.get("adacomm_steps", self.start), dtype=np.int64)

    def observe(self, memory: Mapping[str, Any], view: View, loss: float, lr: float) -> Memory:
        """Return the memory after a round of this loss and local rate."""
        if not loss >= 0:
            raise UpdateError(
                f"AdaComm needs a training loss >= 0, whose root it takes; got {loss} in round {view.round}. "
                "Train with a loss that has a floor at zero, or set local.steps instead of local.effort."
            )
        if "adacomm_loss" not in memory:
            start = {"adacomm_loss": loss, "adacomm_lr": lr, "adacomm_steps": self.start, "adacomm_changed": 0}
            return {**memory, **start}
        if view.round - memory["adacomm_changed"] < self.every:
            return dict(memory)
        first = memory["adacomm_loss"]  # F_0
        ratio = (memory["adacomm_lr"] / lr) * (loss / first if first > 0 else 1.0)
        if self.variant == "paddle":
            steps = steps_by_loss(self.start, ratio)
        else:
            steps = fewer_steps(memory["adacomm_steps"], self.start, ratio, self.shrink)
        return {**memory, "adacomm_steps": steps, "adacomm_changed": view.round}
