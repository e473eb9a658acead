"""FedNova: average the progress per unit of work, then rescale by the mean work.

Intuition: a client that took fifty steps should not outvote one that took five.

    work   τ_eff = Σ_{i∈S} w_i ‖a_i‖₁
    steps  τ_eff = Σ_{i∈S} w_i τ_i                     what some code does under a proximal pull

    u = τ_eff · Σ_{i∈S} w_i Δ_i / ‖a_i‖₁               w_i as in FedAvg

Under `ht` w_i = p_i / π_i (p_i N / K for a uniform cohort); both sums are then unbiased given who is up, and under
`ht-fleet` over who is up, too, though their product need not be. The coefficients sum to one only when all work is
equal: nothing divides by their sum.

Reduces to: FedAvg when every ‖a_i‖₁ is equal.
Differs from the paper: p_i is normalised over the clients that answered, unless weighting is "ht" or "ht-fleet".
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from collections.abc import Iterator
from typing import Any, Literal

from turnout.aggregation.fedavg import Weighting, participation_weights, weighting_objections
from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.rows import Facts
from turnout.settings import rule


def normalised_coefficients(weights: Floats, local_work: Floats, effective_work: float) -> Floats:
    """Return the coefficient of each row of changes; they need not sum to one."""
    return effective_work * weights / local_work


@rule("aggregation")
class FedNova:
    """Normalised averaging; each local solver reports its own work."""

    weighting: Weighting = "ratio"  # how weights correct for who was asked, and for who was up
    effective: Literal["work", "steps"] = "work"  # τ_eff: the mean of ‖a_i‖₁, or of τ_i

    def coefficients(self, facts: Facts) -> Floats:
        """Return τ_eff w_i / ‖a_i‖₁ of each row."""
        idle = facts.clients[~(facts.local_work > 0)]
        if len(idle):
            raise UpdateError(
                f"FedNova needs local_work > 0; client {idle[0]} did none. "
                "Drop idle clients, or aggregate with SchemeC."
            )
        weights = participation_weights(facts, self.weighting)
        amounts = facts.local_work if self.effective == "work" else facts.local_steps
        effective_work = float((weights * amounts).sum())  # τ_eff
        return normalised_coefficients(weights, facts.local_work, effective_work)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why an adaptive local solver does not go with this rule, or a fleet with the weighting."""
        yield from weighting_objections(self.weighting, plan)
        if not getattr(plan.local, "preconditioned", False):
            return
        solver, correction = type(plan.local).__name__, getattr(plan.local, "correction", "none")
        if correction == "none":
            yield (
                f"FedNova divides by the number of steps done, and {solver} scales each step by a preconditioner that "
                'this number does not know. Set local.correction = "joint" and aggregate with Joint, '
                "or use SGD at the clients."
            )
        else:
            yield (
                f'{solver} with correction = "{correction}" has already divided each change by its work, and FedNova '
                f"would divide again. Aggregate with {'Joint' if correction == 'joint' else 'FedAvg'}."
            )
