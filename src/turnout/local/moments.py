"""Parts that the adaptive solvers share: the state per row, the preconditioned step, and the correction of the update.

The preconditioner of step k is P_k = 1/(√v_k + τ_a). The solver also accumulates its weight C in the client's update:

    a ← β·a + (1−β)·P_k        (a = 0 at the start; β is the solver's momentum)
    C ← C + a                  (C = 0 at the start)
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import Accumulator, Positive, rule

Correction = Literal["none", "local", "joint"]


def squares(slot: SlotUpdate) -> Tensor:
    """Return v of the active rows; it starts at each row's own v₀."""
    square: Tensor = slot.state["square"][: len(slot.param)]
    if slot.step == 0 and "initial_accumulator" in slot.settings:
        square.add_(slot.settings["initial_accumulator"])
    return square


def preconditioned_step(
    slot: SlotUpdate, direction: Tensor, square: Tensor, momentum: Tensor | float = 0.0, unbias: Tensor | float = 1.0
) -> None:
    """Subtract η_l·d·P from the parameter, and accumulate C if there is a correction.

    Args:
        slot: the parameter to update.
        direction: d, already multiplied by `unbias`.
        square: v, already bias-corrected.
        momentum: β of the direction.
        unbias: 1/(1−βᵏ⁺¹) if the direction is bias-corrected, else 1.
    """
    settings, rows = slot.settings, len(slot.param)
    inverse = square.sqrt().add_(settings["adaptivity"]).reciprocal_()  # P_k
    has_scale = "scale" in slot.state
    moved = (
        direction * inverse if has_scale else inverse.mul_(direction)
    )  # in place: these passes over memory are the cost
    slot.param.sub_(moved.mul_(settings["lr"]))
    if has_scale:
        smoothed = slot.state["smoothed"][:rows]
        smoothed.mul_(momentum).add_(inverse * (1 - momentum))  # a
        slot.state["scale"][:rows].add_(smoothed * unbias)  # C


def is_alike(slot: SlotUpdate) -> bool:
    """Whether PyTorch's fused step can move the slot: one number per setting, no correction, one layout for all."""
    tensors = (slot.param, slot.grad, *slot.state.values())
    return (
        "scale" not in slot.state
        and all(isinstance(value, float) for value in slot.settings.values())
        and all(each.is_contiguous() and each.shape[1:] == slot.param.shape[1:] for each in tensors)
    )


def corrected(delta: Tensor, state: Memory, correction: Correction) -> tuple[Tensor, Tensor | None]:
    """Return Δ, or Δ⊘C, or both Δ⊘C and 1⊘C, with 0 where C is 0."""
    if correction == "none":
        return delta, None
    scale: Tensor = state["scale"]  # C
    inverse = torch.where(scale > 0, scale.reciprocal(), torch.zeros_like(scale))
    return delta * inverse, inverse if correction == "joint" else None


@rule("local")
class Adaptive(Solver):
    """The settings of every adaptive solver, and the update it sends."""

    preconditioned: ClassVar[bool] = True
    client_state: ClassVar[None] = None
    # adaptivity τ_a in the denominator, greater than 0; 1e-3 is usual, a larger value is less adaptive
    adaptivity: Positive = 1e-3
    initial_accumulator: Accumulator = 0.0  # initial second moment v₀ in every round, 0 or more; 0 is usual
    # correction of the update for the preconditioner: "none" sends Δ_i, "local" sends Δ_i divided by C_i, "joint" also
    # sends 1/C_i and needs the Joint aggregation
    correction: Correction = "none"

    def numbers(self) -> dict[str, float]:
        """Return τ_a, and v₀ if it is not 0."""
        start = {"initial_accumulator": self.initial_accumulator} if self.initial_accumulator else {}
        return {**Solver.numbers(self), "adaptivity": self.adaptivity, **start}

    @property
    def features(self) -> frozenset[str]:
        """The active features; all clients of one block have the same correction."""
        return frozenset({*self.numbers(), f"correction {self.correction}"})

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return τ_i; the weight of each step in each coordinate is in C_i."""
        return steps.astype(np.float64)

    def fresh_state(self, params: Sequence[Tensor], names: Sequence[str]) -> list[Memory]:
        """Return zeros under each name for every parameter, and under those of the correction if there is one."""
        all_names = [*names, "smoothed", "scale"] if self.correction != "none" else names
        return [{name: torch.zeros_like(param) for name in all_names} for param in params]

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return the corrected update."""
        return corrected(delta, state, self.correction)
