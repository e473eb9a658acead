"""Model replacement: attackers boost the way to a model of their choice until the average lands on it.

Intuition: when everyone else barely moves, one voice that is loud enough is the average.

    Δ̃_i = γ·(x − x̂)      x̂: what the attacker wants
    flipped  x̂ = its own model, trained on reversed labels (y → C − 1 − y)
    zero     x̂ = 0, a model that knows nothing
    γ = n/m, for n answers of which m are the attackers', unless given

Reduces to: label-flip when x̂ is flipped and γ = 1. An equal mean lands on x̂ exactly when the others do not move.
Differs from the paper: several attackers share the boost; there, one has all of it.
Reference: Bagdasaryan, Veit, Hua, Estrin, Shmatikov. AISTATS 2020. arXiv:1807.00459.
"""

from typing import Literal

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.attacks.label_flip import mapped
from turnout.settings import Positive, rule


@rule("attack")
class ModelReplacement(Attackers):
    """A boosted push to a chosen model."""

    target: Literal["flipped", "zero"] = "flipped"  # x̂
    boost: Positive | None = None  # γ; left out, answers per attacker

    @property
    def relabels(self) -> bool:
        """Whether attackers train on labels of their own."""
        return self.target == "flipped"

    def relabel(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return reversed labels."""
        return mapped(labels, num_classes, None)

    def forge(self, seen: Seen) -> Tensor:
        """Return γ·(x − x̂)."""
        boost = len(seen.clients) / int(seen.hostile.sum()) if self.boost is None else self.boost
        way = seen.own if self.target == "flipped" else seen.model.expand_as(seen.own)
        return way * boost
