"""Control variates: what SCAFFOLD's clients remember, and how it follows from their updates.

    k_i  = c_i − c                                   subtracted from every gradient of client i
    c_i⁺ = k_i + Δ_i/(η_l‖a_i‖₁)        "average"    option II of the paper
    c_i⁺ = ∇F_i(x)                      "gradient"   option I
    c    ← c + Σ_{i∈S} p_i (c_i⁺ − c_i)              so that c = Σ_i p_i c_i always

Differs from the paper: clients count by p_i and not 1/N. The two are the same for equal data; without p_i, clients of
unequal size are pulled to the optimum of another objective. The update is divided by ‖a_i‖₁ and not τ_i, which is the
same for plain SGD and keeps the control variate an average gradient under momentum, a proximal term or a decaying
learning rate.
Reference: Karimireddy et al. SCAFFOLD. ICML 2020. arXiv:1910.06378.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from turnout.array_types import Floats
from turnout.rows import Facts


@dataclass(frozen=True, slots=True)
class ControlVariates:
    """One control variate c_i per client, kept in the client store."""

    name: ClassVar[str] = "control"
    source: Literal["update", "gradient"]

    def scale(self, facts: Facts) -> Floats:
        """Return 1/(η_l‖a_i‖₁), which makes an average gradient of an update."""
        scale: Floats = 1.0 / (facts.local_lr * facts.local_work)
        return scale
