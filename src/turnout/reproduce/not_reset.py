"""Local SGD of clients that are never reset to the global model: each goes on from where it ended itself."""

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.local.sgd import SGD, sgd_step
from turnout.protocols import Memory, SlotUpdate, View
from turnout.settings import rule


@rule("local")
class NotReset(SGD):
    """SGD from the client's own last model x_i; the global model x only pulls it, by the proximal term.

        x_i ← x  in the client's first round;   then  x_i ← x_i − η (g + μ (x_i − x)),   Δ_i = x − x_i

    The first local step of a round only puts the client's own model back, so one more step is asked for. A client whose
    row is all zeros has not trained yet.
    """

    @property
    def keeps(self) -> tuple[str, ...]:
        """The client's own model."""
        return (*SGD.keeps.fget(self), "own")  # type: ignore[attr-defined]

    def numbers(self) -> dict[str, float]:
        """Return the active numeric settings, with one that marks the step as not SGD's own."""
        return {**SGD.numbers(self), "not_reset": 1.0}

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return τ_i of each client, and the step that puts its own model back."""
        return SGD.asked(self, clients, view) + 1

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return an empty row for the client's own model, beside SGD's state."""
        return [
            {**state, "own": torch.zeros_like(param)}
            for state, param in zip(SGD.begin(self, params), params, strict=True)
        ]

    def update(self, slot: SlotUpdate) -> None:
        """Put the client's own model back in the first step, and move it by one step in the others."""
        own = slot.state["own"][: len(slot.param)]
        if slot.step == 0:
            has_trained = own.flatten(1).any(1).reshape(-1, *[1] * (own.dim() - 1))
            slot.param.copy_(torch.where(has_trained, own, slot.param))
        else:
            sgd_step(slot)
        own.copy_(slot.param)
