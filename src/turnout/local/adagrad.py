"""Adagrad at the client: each parameter's step is divided by the size of all its gradients of the round so far.

Intuition: parameters that rarely see a gradient take long steps when they do.

    v   ← v + g²                               (v = v₀ at the start of the round)
    x_i ← x_i − η_l · g / (√v + τ_a)

    correction   none: sends Δ_i     local: sends Δ_i ⊘ C_i     joint: sends Δ_i ⊘ C_i and 1 ⊘ C_i
    C_i = Σ_k 1/(√v_k + τ_a)

Accumulators are fresh at every client in every round; there is no other mode. Uncorrected, each client measures
distance with a ruler of its own, and the average leans to those with small gradients. `joint`, with the Joint
aggregation, takes that out. `local` changes the scale of what is sent: retune the server's rate.

Reduces to: SGD with the rate η_l/√v₀ as v₀ → ∞; C_i is then τ_i/√v₀ in every coordinate.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from collections.abc import Sequence

from torch import Tensor

from turnout.local.moments import Adaptive, preconditioned_step, squares
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import rule


@rule("local")
class Adagrad(Adaptive):
    """Adagrad for a number of epochs or steps."""

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return fresh accumulators."""
        return self.fresh_state(params, ["square"])

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        square = squares(slot).addcmul_(slot.grad, slot.grad)  # v
        preconditioned_step(slot, slot.grad, square)
