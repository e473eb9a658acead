"""Per-FedAvg's local solver: the shared model is trained to be a good start for one step at each client.

Intuition: what counts is not the loss at w but the loss after a client took a step from w on its own data.

    min_w  Σ p_i F_i( w − a ∇F_i(w) )

    y ← w − a ∇f_i(w; batch 1);   q ← ∇f_i(y; batch 2)
    first-order:   w ← w − η_l q
    hessian-free:  c ← ( ∇f_i(w + δq; batch 3) − ∇f_i(w − δq; batch 3) ) / (2δ);   w ← w − η_l (q − a c)

One such update is one local step for `steps`, and 2 or 4 gradients: clocks, deadlines and costs count gradients. An
epoch visits every sample once. A client that is cut off in the middle of an update sends what it had before it.
`personal = "fine-tune"` takes the step at the client before the model is used.

Reduces to: local SGD on every second mini-batch when a → 0. On quadratics the first-order fixed point has the weights
p_i h_i(1 − a h_i), the Hessian-free one p_i h_i(1 − a h_i)², for every δ.
Differs from the paper: nothing. Public code adapts on test batches, which is cheating, or fixes a = η_l.
Reference: Fallah, Mokhtari, Ozdaglar. NeurIPS 2020. arXiv:2002.07948.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate, View
from turnout.settings import Positive, When, rule

CYCLES = {"first": (0, 1), "hessian-free": (0, 1, 2, 2)}  # the mini-batch of each gradient of an update


@rule("local")
class Meta(Solver):
    """Per-FedAvg: the gradient after one step at the client, in place of the gradient before it."""

    inner_lr: Positive = 0.01  # learning rate a of the client's own step, above 0; 0.001 to 0.1 is usual
    # "first" leaves the derivative of the inner step out, "hessian-free" takes it from a difference of two gradients
    order: Literal["first", "hessian-free"] = "first"
    delta: Annotated[Positive, When(order="hessian-free")] = 0.001  # length δ of that difference, above 0

    work_is_linear = False

    @property
    def cycle(self) -> tuple[int, ...]:
        """The mini-batches of an update; the two gradients of a difference share one."""
        return CYCLES[self.order]

    def numbers(self) -> dict[str, float]:
        """Return the numeric settings except the learning rate."""
        return {**Solver.numbers(self), "inner_lr": self.inner_lr, "delta": self.delta}

    @property
    def features(self) -> frozenset[str]:
        """The settings, and the order."""
        return frozenset({*self.numbers(), self.order})

    @property
    def client_state(self) -> None:
        """Nothing."""
        return None

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return the gradients of as many updates as there are steps, or as many as an epoch has mini-batches for."""
        asked, fresh = Solver.asked(self, clients, view), max(self.cycle) + 1
        updates = asked if self.steps is not None else -(-asked // fresh)
        return np.asarray(updates * len(self.cycle))

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return the number of updates."""
        return np.asarray(steps // len(self.cycle), dtype=np.float64)

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return room for the model between updates, its gradient after the inner step, and half a difference."""
        names = ("moved", "gradient", *(("curvature",) if self.order == "hessian-free" else ()))
        return [{"start": p.clone(), **{name: torch.zeros_like(p) for name in names}} for p in params]

    def update(self, slot: SlotUpdate) -> None:
        """Take in one gradient of an update, and go to where the next one is taken."""
        s, rows, turn = slot.settings, len(slot.param), slot.step % len(self.cycle)
        start, moved, after = (slot.state[name][:rows] for name in ("start", "moved", "gradient"))
        if turn == 0:
            slot.param.sub_(slot.grad * s["inner_lr"])
            return
        if turn == 1:
            after.copy_(slot.grad)
            if self.order == "first":
                moved.add_(after * s["lr"])
                slot.param.copy_(start - moved)
            else:
                slot.param.copy_(start - moved + after * s["delta"])
            return
        half = slot.state["curvature"][:rows]
        if turn == 2:
            half.copy_(slot.grad)
            slot.param.copy_(start - moved - after * s["delta"])
            return
        curvature = (half - slot.grad) / (2.0 * s["delta"])
        moved.add_((after - curvature * s["inner_lr"]) * s["lr"])
        slot.param.copy_(start - moved)

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return how far the model has moved by whole updates."""
        return state["moved"], None
