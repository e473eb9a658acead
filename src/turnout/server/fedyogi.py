"""FedYogi: FedAdam whose divisor changes by a fixed share of the newest square, up or down.

Intuition: after one large round the divisor comes down slowly, so that a burst does not unleash a long stride.

    m ← β1·m + (1−β1)·u
    v ← v − (1−β2)·u²·sign(v − u²)             (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵗ) and v/(1−β2ᵗ) take the place of m and v; t = 1 at the first step

Reduces to: FedAdam at the first step when v₀ = 0.
Differs from the paper: v₀ is 0, as in the authors' runs, where the paper asks for τ_a² or more; bias_correction is an
addition, and off. τ_a is outside the root, as there.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Adaptive
from turnout.settings import rule


def drifting_squares(second: Tensor, direction: Tensor, beta2: float) -> Tensor:
    """Return v − (1−β2)·u²·sign(v − u²)."""
    square = direction.square()
    return second.addcmul((second - square).sign_(), square, value=beta2 - 1)


@rule("server")
class FedYogi(Adaptive):
    """Yogi on the clients' average change."""

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        return self.moved(model, step, memory, drifting_squares)
