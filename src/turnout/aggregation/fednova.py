"""FedNova: average the progress per unit of work, then rescale by the mean work.

Intuition: a client that took fifty steps should not outvote one that took five.

    work   τ_eff = Σ_{i∈S} w_i ‖a_i‖₁
    steps  τ_eff = Σ_{i∈S} w_i τ_i                     used by some implementations with a proximal term

    u = τ_eff · Σ_{i∈S} w_i Δ_i / ‖a_i‖₁               w_i as in FedAvg

Under `ht` w_i = p_i / π_i, which is p_i N / K for a uniform cohort. Both sums are then unbiased given the available
clients, and under `ht-fleet` over availability as well; their product need not be unbiased. The coefficients sum to
one only if all clients do equal work. The rule does not divide by their sum.

Reduces to: FedAvg when every ‖a_i‖₁ is equal.
Differs from the paper: p_i is normalised over the clients that returned an update, unless weighting is "ht" or
"ht-fleet".
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from typing import ClassVar, Literal

from turnout.aggregation.fedavg import Weighting, participation_weights
from turnout.array_types import Floats
from turnout.errors import UpdateError
from turnout.rows import Facts
from turnout.settings import rule


def normalised_coefficients(weights: Floats, local_work: Floats, effective_work: float) -> Floats:
    """Return the coefficient of each update; the coefficients need not sum to one."""
    return effective_work * weights / local_work


@rule("aggregation")
class FedNova:
    """Normalised averaging; each local solver reports its own work."""

    divides_by_work: ClassVar[str] = "always"
    # how the weights w_i correct for client sampling, as in FedAvg: "ratio" normalises p_i over the cohort, which is
    # usual; "mean" gives every draw the same weight; "ht" uses p_i / π_i, "ht-fleet" p_i / (q_i π_i)
    weighting: Weighting = "ratio"
    # the effective work τ_eff is the weighted mean of ‖a_i‖₁ ("work", as in the paper) or of the local steps τ_i
    # ("steps")
    effective: Literal["work", "steps"] = "work"

    def coefficients(self, facts: Facts) -> Floats:
        """Return τ_eff w_i / ‖a_i‖₁ of each update."""
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
