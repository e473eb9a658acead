"""SGD at the client, with momentum, weight decay, a proximal pull, local decay, clipping and controls, in any mix.

Intuition: every client takes a few ordinary steps from the model it was handed.

    g   = clip(∇f(x_i; batch)) + λ·x_i − k_i
    v   ← ρ·v + g                                  (v = 0 at the start of the round)
    x_i ← x_i − η_l γᵏ · ( v + μ·(x_i − x) )

    ‖a_i‖₁ :  B ← ρB + 1;  C ← (1 − η_l γᵏ μ)·C + γᵏ B;  C after τ_i steps

    control   none: k_i = 0;   else k_i = c_i − c with c = Σ_i p_i c_i, all 0 at first, and after the round
              average:  c_i ← k_i + Δ_i/(η_l‖a_i‖₁)          SCAFFOLD's option II
              gradient: c_i ← ∇F_i(x)                        option I: every sample, at the model that was sent

Reduces to: plain local SGD when ρ = λ = μ = 0, γ = 1 and nothing is clipped; then ‖a_i‖₁ = τ_i.
Differs from the paper: the proximal pull is added to the direction, never to the momentum buffer; the gradient is
clipped before weight decay, controls and the pull, so that clipping bounds the data's part alone. Controls count by
p_i and not 1/N, and are divided by ‖a_i‖₁ and not τ_i: the same for equal data and plain steps.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629; Li et al. (FedProx). MLSys 2020. arXiv:1812.06127;
Karimireddy et al. (SCAFFOLD). ICML 2020. arXiv:1910.06378.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.local.control_variates import ControlVariates
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import NonNegative, PositiveShare, ShareBelowOne, rule


def accumulated_work(steps: Ids, *, lr: Floats, momentum: Floats, prox_strength: Floats, lr_decay: Floats) -> Floats:
    """Return ‖a_i‖₁ by the general recursion, one value per client."""
    buffer, work = np.zeros(len(steps)), np.zeros(len(steps))
    decay = np.ones(len(steps))
    for k in range(int(steps.max(initial=0))):
        active = k < steps
        buffer = np.where(active, momentum * buffer + 1.0, buffer)  # B
        work = np.where(active, (1.0 - lr * decay * prox_strength) * work + decay * buffer, work)  # C
        decay = decay * lr_decay
    return work


def sgd_step(slot: SlotUpdate) -> None:
    """Move one parameter of every row by one step of the general solver."""
    s, grad, param = slot.settings, slot.grad, slot.param
    if "weight_decay" in s:
        grad.add_(param * s["weight_decay"])
    if slot.offset is not None:
        grad.sub_(slot.offset)
    direction = grad
    if "momentum" in s:
        velocity = slot.state["velocity"][: len(param)]
        velocity.mul_(s["momentum"]).add_(grad)
        direction = velocity
    rate = s["lr"] * s["lr_decay"] ** slot.step if "lr_decay" in s else s["lr"]
    if "prox_strength" in s:  # a new tensor: the pull must not leak into the velocity
        direction = direction + (param - slot.anchor) * s["prox_strength"]
    if isinstance(rate, Tensor):
        param.addcmul_(direction, rate, value=-1.0)
    else:
        param.add_(direction, alpha=-rate)


@rule("local")
class SGD(Solver):
    """Stochastic gradient descent for a number of epochs or steps."""

    momentum: ShareBelowOne = 0.0  # ρ
    weight_decay: NonNegative = 0.0  # λ
    prox_strength: NonNegative = 0.0  # μ
    lr_decay: PositiveShare = 1.0  # γ, per local step
    control: Literal["none", "average", "gradient"] = "none"  # SCAFFOLD's controls; "average" is its option II

    def numbers(self) -> dict[str, float]:
        """Return the settings that are switched on, beside the rate."""
        on = {name: getattr(self, name) for name in ("momentum", "weight_decay", "prox_strength")}
        decay = {"lr_decay": self.lr_decay} if self.lr_decay != 1 else {}
        return {**Solver.numbers(self), **{name: value for name, value in on.items() if value != 0}, **decay}

    @property
    def client_state(self) -> ControlVariates | None:
        """SCAFFOLD's control variates, where they are switched on."""
        if self.control == "none":
            return None
        return ControlVariates("update" if self.control == "average" else "gradient")

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return ‖a_i‖₁; weight decay and clipping bend the linear model slightly and are left out."""
        if not self.features & {"momentum", "prox_strength", "lr_decay"}:
            return steps.astype(np.float64)
        zeros, ones = np.zeros(len(steps)), np.ones(len(steps))
        return accumulated_work(
            steps,
            lr=settings["lr"],
            momentum=settings.get("momentum", zeros),
            prox_strength=settings.get("prox_strength", zeros),
            lr_decay=settings.get("lr_decay", ones),
        )

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return a zero velocity per parameter where momentum is on."""
        if self.momentum == 0:
            return [{} for _ in params]
        return [{"velocity": torch.zeros_like(param)} for param in params]

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        sgd_step(slot)

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Send the change as it is."""
        return delta, None
