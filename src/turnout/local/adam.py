"""Adam at the client: a moving average of gradients, divided by a moving average of their size.

Intuition: every parameter moves about η_l a step, whatever the scale of its gradient.

    m   ← β1·m + (1−β1)·g                      (m = 0 at the start of the round)
    v   ← β2·v + (1−β2)·g²                     (v = v₀ at the start of the round)
    x_i ← x_i − η_l · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵏ⁺¹) and v/(1−β2ᵏ⁺¹) take the place of m and v at step k = 0, 1, …

    correction   none: sends Δ_i     local: sends Δ_i ⊘ C_i     joint: sends Δ_i ⊘ C_i and 1 ⊘ C_i
    a ← β1·a + (1−β1)/(√v + τ_a);   C_i ← C_i + a          (a/(1−β1ᵏ⁺¹) with bias_correction)

Moments are fresh at every client in every round; there is no other mode. See Adagrad for what the corrections do.

Reduces to: torch's Adam with bias_correction; when β2 = 0 and β1 = 0, steps of η_l·sign(g) as τ_a → 0.
Differs from the paper: bias correction is off, as C_i there leaves it out; switched on here, C_i has it too.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from collections.abc import Sequence

from torch import Tensor

from turnout.errors import ConfigError
from turnout.local.moments import Adaptive, preconditioned_step, squares
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import ShareBelowOne, rule


@rule("local")
class Adam(Adaptive):
    """Adam for a number of epochs or steps."""

    beta1: ShareBelowOne = 0.9  # β1
    beta2: ShareBelowOne = 0.99  # β2
    bias_correction: bool = False  # divide m and v by what is missing while they are young

    def __post_init__(self) -> None:
        Adaptive.__post_init__(self)
        if self.bias_correction and self.initial_accumulator > 0:
            raise ConfigError(
                f"Adam needs initial_accumulator = 0 with bias_correction, which takes v to begin there; got "
                f"{self.initial_accumulator}. Change local.initial_accumulator."
            )

    def numbers(self) -> dict[str, float]:
        """Return τ_a, v₀ where it is not 0, and the two β."""
        return {**Adaptive.numbers(self), "beta1": self.beta1, "beta2": self.beta2}

    @property
    def features(self) -> frozenset[str]:
        """What is switched on: rows of one block are all corrected alike."""
        flags = {"bias_correction"} if self.bias_correction else set()
        return frozenset({*self.numbers(), f"correction {self.correction}", *flags})

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return fresh moments."""
        return self.fresh_state(params, ["mean", "square"])

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        beta1, beta2 = slot.settings["beta1"], slot.settings["beta2"]
        mean = slot.state["mean"][: len(slot.param)].lerp_(slot.grad, 1 - beta1)  # m
        square = squares(slot).lerp_(slot.grad.square(), 1 - beta2)  # v
        if not self.bias_correction:
            return preconditioned_step(slot, mean, square, beta1)
        unbias = 1 / (1 - beta1 ** (slot.step + 1))
        return preconditioned_step(slot, mean * unbias, square / (1 - beta2 ** (slot.step + 1)), beta1, unbias)
