"""FedExP: the server's rate is read off each round, from how much the clients' changes cancel in their mean.

Intuition: clients that moved far but in different directions leave a short mean, and the server may stretch it.

    η_g = max( 1, Σ_i w_i‖Δ_i‖² / (2·(‖u‖² + ε)) )      u = Σ_i w_i Δ_i
    x ← x − η_g·u                                         measured at (x before + x after)/2

w_i are the aggregation's own coefficients, as they are: if every client comes no further from x* than it was, then
⟨u, x − x*⟩ ≥ ½ Σ w_i‖Δ_i‖² for any w_i ≥ 0, whether or not they sum to one, and that is what the rate rests on.
The iterates swing around the path, so what is measured, and given out at the end, is the mean of the last two;
training goes on from the last. A round in which nobody answers makes no iterate: the same mean is measured again.

Reduces to: server SGD with a rate of one when all changes are equal, when one client answers, or as ε → ∞.
Differs from the paper: weighted, as in the authors' code. eps_scale = "participants" multiplies ε by the number of
draws and eps_decay = 0.998² shrinks ε before every step; both are off in the paper and on in that code.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import GIVEN, NonNegative, PositiveShare, When, rule


def extrapolation(coefficients: Floats, square_norms: Floats, mean_square: float, eps: float) -> float:
    """Return η_g from the weights, each ‖Δ_i‖², and ‖u‖²; one where u is zero and there is no ε."""
    spread = float(np.dot(coefficients, square_norms))  # Σ w_i‖Δ_i‖²
    room = 2 * (mean_square + eps)
    return max(1.0, spread / room) if room > 0 else 1.0


Scale = Literal["none", "participants"]


@rule("server")
class FedExP:
    """A server rate of one or more, found anew each round."""

    wants_norms: ClassVar[bool] = True
    eps: NonNegative = 1e-3  # ε
    eps_scale: Annotated[Scale, When(eps=GIVEN)] = "none"  # "participants": ε times the number of draws
    eps_decay: Annotated[PositiveShare, When(eps=GIVEN)] = 1.0  # factor on ε before every step
    evaluates_average: bool = True  # measure the mean of the last two iterates, not the last

    def objections(self, plan: Any) -> Iterator[str]:
        """Refuse aggregations whose direction is not their coefficients times the rows."""
        if not getattr(plan.aggregation, "is_weighted_sum", True):
            yield (
                f"its rate needs a direction that is a weighted sum of the changes, and "
                f"{type(plan.aggregation).__name__}'s is not. Move with server SGD, or aggregate with FedAvg."
            )

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g u, the rate that was found, and the mean of the two iterates."""
        if step.square_norms is None:
            raise UpdateError(
                "FedExP needs the squared norm of every change; this engine sent none. "
                "Answer Fit requests that have wants_norms with square_norms."
            )
        steps = memory.get("steps", 0) + 1
        eps = self.eps * self.eps_decay**steps
        if self.eps_scale == "participants":
            eps *= step.facts.num_draws
        mean_square = float(step.direction.double().square().sum())  # ‖u‖²
        server_lr = extrapolation(step.coefficients, step.square_norms, mean_square, eps)  # η_g
        moved = model.sub(step.direction, alpha=server_lr)
        average = (model + moved).div_(2) if self.evaluates_average else None
        return Moved(moved, {"steps": steps}, {"server_lr": server_lr}, average)
