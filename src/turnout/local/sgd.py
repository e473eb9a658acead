"""SGD at the client, with optional momentum, weight decay, proximal term, learning rate decay, clipping and controls.

Intuition: every client takes a few ordinary SGD steps from the round's model.

    g   = clip(∇f(x_i; batch)) + λ·x_i − k_i
    v   ← ρ·v + g            (v = 0 at the start of the round; with momentum_reset = "never" the client's own)
    d   = v,  or g + ρ·v with Nesterov momentum
    x_i ← x_i − η_l γᵏ · ( d + μ·(x_i − x) )

    ‖a_i‖₁ :  B ← ρB + 1;  C ← (1 − η_l γᵏ μ)·C + γᵏ B;  C after τ_i steps   (1 + ρB for B in C with Nesterov)

    control   none: k_i = 0;   else k_i = c_i − c with c = Σ_i p_i c_i, all 0 at first, and after the round
              average:  c_i ← k_i + Δ_i/(η_l‖a_i‖₁)          SCAFFOLD's option II
              gradient: c_i ← ∇F_i(x)                        option I: full gradient at the round's model

‖a_i‖₁ counts this round's gradients only, also where the velocity carries older ones.
Reduces to: plain local SGD when ρ = λ = μ = 0, γ = 1 and nothing is clipped; then ‖a_i‖₁ = τ_i.
Differs from the paper: the proximal term is added to the direction, not to the momentum buffer. The gradient is clipped
before weight decay, controls and the proximal term, so that clipping limits only the mini-batch gradient. The mean of
the controls has weights p_i, not 1/N, and the update is divided by ‖a_i‖₁, not τ_i; both agree with the paper for equal
data sizes and plain steps.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629; Li et al. (FedProx). MLSys 2020. arXiv:1812.06127;
Karimireddy et al. (SCAFFOLD). ICML 2020. arXiv:1910.06378; Sutskever et al. (Nesterov momentum). ICML 2013.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.local.control_variates import ControlVariates
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import GIVEN, NonNegative, PositiveShare, ShareBelowOne, When, rule


def accumulated_work(
    steps: Ids, *, lr: Floats, momentum: Floats, prox_strength: Floats, lr_decay: Floats, nesterov: bool = False
) -> Floats:
    """Return ‖a_i‖₁ by the general recursion, one value per client."""
    buffer, work = np.zeros(len(steps)), np.zeros(len(steps))
    decay = np.ones(len(steps))
    for k in range(int(steps.max(initial=0))):
        active = k < steps
        buffer = np.where(active, momentum * buffer + 1.0, buffer)  # B
        weight = 1.0 + momentum * buffer if nesterov else buffer  # of this step's direction
        work = np.where(active, (1.0 - lr * decay * prox_strength) * work + decay * weight, work)  # C
        decay = decay * lr_decay
    return work


def sgd_step(slot: SlotUpdate) -> None:
    """Update one parameter of every row by one step of the general solver."""
    s, grad, param = slot.settings, slot.grad, slot.param
    if "weight_decay" in s:
        grad.add_(param * s["weight_decay"])
    if slot.offset is not None:
        grad.sub_(slot.offset)
    direction = grad
    if "momentum" in s:
        velocity = slot.state["velocity"][: len(param)]
        velocity.mul_(s["momentum"]).add_(grad)
        direction = grad.add_(velocity * s["momentum"]) if "nesterov" in s else velocity
    rate = s["lr"] * s["lr_decay"] ** slot.step if "lr_decay" in s else s["lr"]
    if "prox_strength" in s:  # a new tensor: the proximal term must not change the velocity
        direction = direction + (param - slot.anchor) * s["prox_strength"]
    if isinstance(rate, Tensor):
        param.addcmul_(direction, rate, value=-1.0)
    else:
        param.add_(direction, alpha=-rate)


@rule("local")
class SGD(Solver):
    """Stochastic gradient descent for a number of epochs or steps."""

    momentum: ShareBelowOne = 0.0  # momentum ρ of local SGD, 0 to below 1; 0 is plain SGD, 0.9 is usual
    nesterov: Annotated[bool, When(momentum=GIVEN)] = False  # whether momentum looks ahead: direction g + ρ·v, not v
    # when the momentum v is set to zero: "round" at the start of every round, "never" lets each client keep its own
    # until its next round
    momentum_reset: Annotated[Literal["round", "never"], When(momentum=GIVEN)] = "round"
    weight_decay: NonNegative = 0.0  # weight decay λ, 0 or more; 0 is none, 1e-4 is usual
    prox_strength: NonNegative = 0.0  # strength μ of FedProx's proximal term, 0 or more; 0 is none, 0.001 to 1 is usual
    lr_decay: PositiveShare = 1.0  # factor γ on the learning rate per local step, above 0 to 1; 1 is no decay
    # SCAFFOLD's control variates: "none" without, "average" refreshes c_i from the update (option II, usual),
    # "gradient" from the full gradient (option I)
    control: Literal["none", "average", "gradient"] = "none"

    def numbers(self) -> dict[str, float]:
        """Return the active numeric settings except the learning rate."""
        on = {name: getattr(self, name) for name in ("momentum", "weight_decay", "prox_strength")}
        flags = {"lr_decay": self.lr_decay} if self.lr_decay != 1 else {}
        flags |= {"nesterov": 1.0} if self.nesterov else {}
        return {**Solver.numbers(self), **{name: value for name, value in on.items() if value != 0}, **flags}

    @property
    def client_state(self) -> ControlVariates | None:
        """SCAFFOLD's control variates, where they are switched on."""
        if self.control == "none":
            return None
        return ControlVariates("update" if self.control == "average" else "gradient")

    @property
    def keeps(self) -> tuple[str, ...]:
        """The velocity, where it outlives the round."""
        return ("velocity",) if self.momentum_reset == "never" and self.momentum else ()

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return ‖a_i‖₁; it ignores weight decay and clipping, whose effect on it is small."""
        if not self.features & {"momentum", "prox_strength", "lr_decay"}:
            return steps.astype(np.float64)
        zeros, ones = np.zeros(len(steps)), np.ones(len(steps))
        return accumulated_work(
            steps,
            lr=settings["lr"],
            momentum=settings.get("momentum", zeros),
            prox_strength=settings.get("prox_strength", zeros),
            lr_decay=settings.get("lr_decay", ones),
            nesterov=self.nesterov,
        )

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return a zero velocity per parameter if momentum is on."""
        if self.momentum == 0:
            return [{} for _ in params]
        return [{"velocity": torch.zeros_like(param)} for param in params]

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        sgd_step(slot)

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return the update unchanged."""
        return delta, None
