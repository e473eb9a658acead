"""FedYogi: FedAdam with a second moment that changes by a fixed fraction of the squared update, up or down.

Intuition: after one round with large updates v decreases slowly, so the steps do not become large at once.

    m ← β1·m + (1−β1)·u
    v ← v − (1−β2)·u²·sign(v − u²)             (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵗ) and v/(1−β2ᵗ) replace m and v in the last line; t = 1 at the first step

Reduces to: FedAdam at the first step when v₀ = 0.
Differs from the paper: the default v₀ is 0, as in the authors' experiments; the paper requires v₀ ≥ τ_a².
bias_correction is an addition, off by default. As in the paper, τ_a is outside the root.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Adaptive
from turnout.settings import rule


def yogi_second_moment(second: Tensor, direction: Tensor, beta2: float) -> Tensor:
    """Return v − (1−β2)·u²·sign(v − u²)."""
    square = direction.square()
    return second.addcmul((second - square).sign_(), square, value=beta2 - 1)


@rule("server")
class FedYogi(Adaptive):
    """Yogi on the aggregated update."""

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        return self.adaptive_step(model, step, memory, yogi_second_moment)
