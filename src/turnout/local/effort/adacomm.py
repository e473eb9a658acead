"""AdaComm: many local steps at first, fewer as the loss decreases.

Intuition: far from the optimum rare communication costs little; near it client drift dominates, so communicate more.

    paper   τ' = ⌈ τ₀ · √( (η_0/η_t) · F_t/F_0 ) ⌉
            τ ← τ' if τ' < τ, else max(1, ⌊γ·τ⌋)                  every R rounds
    paddle  τ ← ⌈ √( τ₀ · (η_0/η_t) · F_t/F_0 ) ⌉, between 1 and τ₀

F_t is the round's mean training loss and η_t its local learning rate. F_0 and η_0 are those of the first round with a
returned update; this round itself never changes τ.

Reduces to: τ₀ steps in every round until R rounds have passed; FedSGD when τ₀ = 1.
Differs from the paper: the loss is the clients' training loss, so no evaluation is needed; intervals are counted in
rounds, not in seconds. The bound behind the rule has (η_0/η_t)³ under the root; this rule uses the first power, so that
τ grows less when the learning rate decreases. The paddle variant is PaddlePaddle's rule, with τ₀ in place of its limit
of 16.
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
    proposal = math.ceil(start * math.sqrt(ratio))  # τ'
    return max(1, proposal if proposal < now else math.floor(shrink * now))


def steps_by_loss(start: int, ratio: float) -> int:
    """Return PaddlePaddle's next τ, given (η_0/η_t)·F_t/F_0; it may rise again, up to τ₀."""
    return min(max(1, math.ceil(math.sqrt(start * ratio))), start)


@rule("local.effort")
class AdaComm:
    """A number of local steps that decreases with the loss."""

    start: StepCount  # initial number of local steps τ₀, 1 or more; 10 to 100 is usual
    every: Count = 10  # number of rounds R between changes of τ, 1 or more; 10 is usual
    # factor γ on τ if the formula would not decrease it, between 0 and 1; 0.5 is usual
    shrink: Annotated[float, Range(above=0, below=1), When(variant="paper")] = 0.5
    variant: Variant = "paper"  # formula for τ: "paper" never increases it, "paddle" (PaddlePaddle) may increase it

    def steps(self, clients: Ids, view: View, per_epoch: Ids) -> Ids:
        """Return the same τ for every client."""
        return np.full(len(clients), view.memory.get("adacomm_steps", self.start), dtype=np.int64)

    def observe(self, memory: Mapping[str, Any], view: View, loss: float, lr: float) -> Memory:
        """Return the memory after a round with this loss and local learning rate."""
        if not loss >= 0:
            raise UpdateError(
                f"AdaComm needs a training loss >= 0, to take its root; got {loss} in round {view.round}. "
                "Train with a loss that is never negative, or set local.steps instead of local.effort."
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
