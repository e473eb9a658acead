"""SGD at the client, with momentum, weight decay, a proximal pull, local decay, clipping and controls, in any mix.

Intuition: every client takes a few ordinary steps from the model it was handed.

    g   = clip(∇f(x_i; batch)) + λ·x_i + k_i
    v   ← ρ·v + g                                  (v = 0 at the start of the round)
    x_i ← x_i − η_l γᵏ · ( v + μ·(x_i − x) )

    ‖a_i‖₁ :  B ← ρB + 1;  C ← (1 − η_l γᵏ μ)·C + γᵏ B;  C after τ_i steps

Reduces to: plain local SGD when ρ = λ = μ = 0, γ = 1 and nothing is clipped; then ‖a_i‖₁ = τ_i.
Differs from the paper: the proximal pull is added to the direction, never to the momentum buffer; the gradient is
clipped before weight decay, controls and the pull, so that clipping bounds the data's part alone.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629; Li et al. (FedProx). MLSys 2020. arXiv:1812.06127.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from turnout.errors import ConfigError
from turnout.local.batches import steps_per_epoch
from turnout.protocols import Batching, Memory, SlotUpdate, View
from turnout.streams import Floats, Ids


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
    if slot.control is not None:
        grad.add_(slot.control)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    """Stochastic gradient descent for a number of epochs or steps."""

    lr: float  # η_l
    batch_size: int | None = None  # B; none is all local samples
    epochs: int | tuple[int, int] | None = None  # E, or a range drawn from per client and round, both ends included
    steps: int | tuple[int, int] | None = None  # τ, or a range
    momentum: float = 0.0  # ρ
    weight_decay: float = 0.0  # λ
    prox_strength: float = 0.0  # μ
    lr_decay: float = 1.0  # γ, per local step
    clip_norm: float | None = None
    batches: Batching = "shuffled"
    control: Literal["none", "average", "gradient"] = "none"  # SCAFFOLD's controls; "average" is its option II

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            got = "both" if self.epochs is not None else "neither"
            raise ConfigError(
                f"SGD needs epochs or steps, one of the two; got {got}. Set local.epochs = 1, for example."
            )
        low, high = _range(self.epochs if self.steps is None else self.steps)
        if not 1 <= low <= high:
            raise ConfigError(
                f"SGD needs a range of work from 1 up; got [{low}, {high}]. "
                "Set local.epochs (or local.steps) to a whole number, or to [least, most]."
            )
        for name, value, ok, need in (
            ("lr", self.lr, self.lr > 0, "> 0"),
            ("batch_size", self.batch_size, self.batch_size is None or self.batch_size >= 1, ">= 1"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, ">= 0"),
            ("prox_strength", self.prox_strength, self.prox_strength >= 0, ">= 0"),
            ("lr_decay", self.lr_decay, 0 < self.lr_decay <= 1, "in (0, 1]"),
            ("clip_norm", self.clip_norm, self.clip_norm is None or self.clip_norm > 0, "> 0"),
        ):
            if not ok:
                raise ConfigError(f"SGD needs {name} {need}; got {value}. Change local.{name}.")

    @property
    def features(self) -> frozenset[str]:
        """What is switched on beyond the plain step."""
        on = {
            "momentum": self.momentum != 0,
            "weight_decay": self.weight_decay != 0,
            "prox_strength": self.prox_strength != 0,
            "lr_decay": self.lr_decay != 1,
            "clip_norm": self.clip_norm is not None,
        }
        return frozenset(name for name, used in on.items() if used)

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return τ_i of each client."""
        low, high = _range(self.epochs if self.steps is None else self.steps)
        amount = np.full(len(clients), low, dtype=np.int64)
        if high > low:
            draw = view.streams.uniforms("work", view.round, clients)[:, 0]
            amount = low + (draw * (high - low + 1)).astype(np.int64)
        if self.steps is not None:
            return amount
        batch_size = None if self.batches == "full" else self.batch_size
        return amount * steps_per_epoch(view.population.sizes[clients], batch_size)

    def settings(self, clients: Ids, view: View) -> dict[str, Floats]:
        """Return η_l and whatever is switched on, one value per client."""
        names = sorted({"lr", *self.features})
        return {name: np.full(len(clients), getattr(self, name), dtype=np.float64) for name in names}

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


def _range(work: int | tuple[int, int] | None) -> tuple[int, int]:
    if work is None:
        raise ConfigError("SGD needs epochs or steps. Set local.epochs = 1, for example.")
    return (work, work) if isinstance(work, int) else (int(work[0]), int(work[1]))
