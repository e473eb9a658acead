"""FedAdam: Adam at the server; each parameter's step is divided by the recent magnitude of its updates.

Intuition: every parameter moves by about η_g per round, whatever the scale of its gradient.

    m ← β1·m + (1−β1)·u
    v ← β2·v + (1−β2)·u²                       (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵗ) and v/(1−β2ᵗ) replace m and v in the last line; t = 1 at the first step

Reduces to: FedYogi at the first step when v₀ = 0; with bias_correction, torch's Adam.
Differs from the paper: the default v₀ is 0, as in the authors' experiments; the paper requires v₀ ≥ τ_a².
bias_correction is an addition, off by default. As in the paper, τ_a is outside the root.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Adaptive
from turnout.settings import rule


def adam_second_moment(second: Tensor, direction: Tensor, beta2: float) -> Tensor:
    """Return β2·v + (1−β2)·u²."""
    return second.mul(beta2).addcmul_(direction, direction, value=1 - beta2)


@rule("server")
class FedAdam(Adaptive):
    """Adam on the aggregated update."""

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        return self.adaptive_step(model, step, memory, adam_second_moment)
