"""What the adaptive solvers share: state by row, the preconditioned step, and the correction of what is sent.

The preconditioner of step k is P_k = 1/(√v_k + τ_a). Beside the step, its weight in the client's change is added up:

    a ← β·a + (1−β)·P_k        (a = 0 at the start; β is the solver's momentum)
    C ← C + a                  (C = 0 at the start)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import Accumulator, Positive, rule

Correction = Literal["none", "local", "joint"]


def squares(slot: SlotUpdate) -> Tensor:
    """Return v of the rows that are still at work; it starts at v₀, each row at its own."""
    square: Tensor = slot.state["square"][: len(slot.param)]
    if slot.step == 0 and "initial_accumulator" in slot.settings:
        square.add_(slot.settings["initial_accumulator"])
    return square


def preconditioned_step(
    slot: SlotUpdate, direction: Tensor, square: Tensor, momentum: Tensor | float = 0.0, unbias: Tensor | float = 1.0
) -> None:
    """Move by η_l·d·P, and add the preconditioner up where there is a correction.

    Args:
        slot: the parameter that moves.
        direction: d, which carries `unbias` already.
        square: v, which carries its own bias correction already.
        momentum: β of the direction.
        unbias: 1/(1−βᵏ⁺¹) where the direction is bias-corrected.
    """
    settings, rows = slot.settings, len(slot.param)
    inverse = square.sqrt().add_(settings["adaptivity"]).reciprocal_()  # P_k
    slot.param.sub_(direction * inverse * settings["lr"])
    if "scale" in slot.state:
        smoothed = slot.state["smoothed"][:rows]
        smoothed.mul_(momentum).add_(inverse * (1 - momentum))  # a
        slot.state["scale"][:rows].add_(smoothed * unbias)  # C


def corrected(delta: Tensor, state: Memory, correction: Correction) -> tuple[Tensor, Tensor | None]:
    """Return Δ, or Δ⊘C, or both Δ⊘C and 1⊘C; 0 where C is 0."""
    if correction == "none":
        return delta, None
    scale: Tensor = state["scale"]  # C
    inverse = torch.where(scale > 0, scale.reciprocal(), torch.zeros_like(scale))
    return delta * inverse, inverse if correction == "joint" else None


@rule("local")
class Adaptive(Solver):
    """The settings of every adaptive solver, and what it sends."""

    preconditioned: ClassVar[bool] = True
    client_state: ClassVar[None] = None
    adaptivity: Positive = 1e-3  # τ_a
    initial_accumulator: Accumulator = 0.0  # v₀
    correction: Correction = "none"  # "local" and "joint" take the preconditioner out of what is sent

    def numbers(self) -> dict[str, float]:
        """Return τ_a, and v₀ where it is not 0."""
        start = {"initial_accumulator": self.initial_accumulator} if self.initial_accumulator else {}
        return {**Solver.numbers(self), "adaptivity": self.adaptivity, **start}

    @property
    def features(self) -> frozenset[str]:
        """What is switched on: rows of one block are all corrected alike."""
        return frozenset({*self.numbers(), f"correction {self.correction}"})

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return τ_i; how much each step weighs, coordinate by coordinate, is in C_i."""
        return steps.astype(np.float64)

    def fresh_state(self, params: Sequence[Tensor], names: Sequence[str]) -> list[Memory]:
        """Return zeros of each name for every parameter, and what the correction adds up."""
        kept = [*names, "smoothed", "scale"] if self.correction != "none" else names
        return [{name: torch.zeros_like(param) for name in kept} for param in params]

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Send what the correction says."""
        return corrected(delta, state, self.correction)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why an aggregation does not go with the correction."""
        aggregation = type(plan.aggregation).__name__
        if self.correction == "joint" and aggregation != "Joint":
            yield (
                f'correction = "joint" sends changes divided by C and needs Joint to put a common scale back; '
                f'{aggregation} does not. Set aggregation.use = "joint", or local.correction to "local" or "none".'
            )
        if self.correction == "joint" and plan.server.wants_norms:
            yield (
                f'{type(plan.server).__name__} weighs changes by their length, and correction = "joint" sends them '
                'divided by C. Set server.use = "sgd", or local.correction = "none".'
            )
        if self.correction == "local" and aggregation == "SchemeC":
            yield (
                'correction = "local" has already divided each change by its work, and SchemeC would do so again. '
                'Set aggregation.use = "scheme-b", or local.correction = "none".'
            )
