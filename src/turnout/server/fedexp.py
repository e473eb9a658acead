"""FedExP: the server computes its learning rate in every round, from how much the client updates cancel in their mean.

Intuition: clients that moved far in different directions have a short mean, which the server may extrapolate.

    η_g = max( 1, Σ_i w_i‖Δ_i‖² / (2·(‖u‖² + ε)) )      u = Σ_i w_i Δ_i
    x ← x − η_g·u                                         evaluated at (x before + x after)/2

w_i are the coefficients of the aggregation rule, unchanged. If no client moves away from x*, then
⟨u, x − x*⟩ ≥ ½ Σ w_i‖Δ_i‖² for any w_i ≥ 0, whether or not they sum to one; the learning rate relies on this bound.
The iterates oscillate, so the mean of the last two is evaluated, and returned at the end of the run. Training continues
from the last iterate. A round without updates makes no new iterate; the same mean is evaluated again.

Reduces to: server SGD with η_g = 1 when all updates are equal, when one client returns an update, or as ε → ∞.
Differs from the paper: weighted, as in the authors' code. eps_scale = "participants" multiplies ε by the number of
draws and eps_decay = 0.998² shrinks ε before every step; the paper has neither, the authors' code has both.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from torch import Tensor

from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import GIVEN, NonNegative, PositiveShare, When, rule


def extrapolation(coefficients: Floats, square_norms: Floats, mean_square: float, eps: float) -> float:
    """Return η_g from the weights, each ‖Δ_i‖², and ‖u‖²; 1 if both u and ε are zero."""
    weighted_squares = float(np.dot(coefficients, square_norms))  # Σ w_i‖Δ_i‖²
    denominator = 2 * (mean_square + eps)
    return max(1.0, weighted_squares / denominator) if denominator > 0 else 1.0


Scale = Literal["none", "participants"]


@rule("server")
class FedExP:
    """A server learning rate of one or more, computed in every round."""

    wants_norms: ClassVar[bool] = True
    needs_weighted_sum: ClassVar[bool] = True
    eps: NonNegative = 1e-3  # ε in the denominator, 0 or more; 1e-3 to 1e-1 is usual, and a larger ε extrapolates less
    # scale of ε: "none" uses ε as it is, "participants" multiplies ε by the number of draws, as the authors' code does
    eps_scale: Annotated[Scale, When(eps=GIVEN)] = "none"
    eps_decay: Annotated[PositiveShare, When(eps=GIVEN)] = 1.0  # factor on ε per step, above 0 to 1; 1 is no decay
    evaluates_average: bool = True  # evaluate the mean of the last two iterates (true, usual) or the last one (false)

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g u, η_g as a metric, and the mean of the two iterates for evaluation."""
        if step.square_norms is None:
            raise UpdateError(
                "FedExP needs the squared norm of every update; this engine sent none. "
                "Answer Fit requests that have wants_norms with square_norms."
            )
        steps = memory.get("steps", 0) + 1
        eps = self.eps * self.eps_decay**steps
        if self.eps_scale == "participants":
            eps *= step.facts.num_draws
        mean_square = float(step.direction.double().square().sum())  # ‖u‖²
        server_lr = extrapolation(step.coefficients, step.square_norms, mean_square, eps)  # η_g
        new_model = model.sub(step.direction, alpha=server_lr)
        average = (model + new_model).div_(2) if self.evaluates_average else None
        return Moved(new_model, {"steps": steps}, {"server_lr": server_lr}, average)
