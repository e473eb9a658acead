"""Model replacement: attackers scale up the update to a model of their choice until the average equals this model.

Intuition: if honest updates are small, one update that is large enough determines the average.

    Δ̃_i = γ·(x − x̂)      x̂: the attacker's target model
    flipped  x̂ = its own model, trained on reversed labels (y → C − 1 − y)
    zero     x̂ = 0, an untrained model
    γ = n/m by default, for n updates of which m are from attackers

Reduces to: label-flip when x̂ is flipped and γ = 1. The unweighted mean equals x̂ if all honest updates are zero.
Differs from the paper: several attackers share the boost; in the paper there is one attacker.
Reference: Bagdasaryan, Veit, Hua, Estrin, Shmatikov. AISTATS 2020. arXiv:1807.00459.
"""

from typing import Literal

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.attacks.label_flip import flipped_labels
from turnout.settings import Positive, rule


@rule("attack")
class ModelReplacement(Attackers):
    """A boosted update to a target model."""

    # target model x̂: "flipped" is the attacker's model after training on reversed labels, "zero" is the zero vector
    target: Literal["flipped", "zero"] = "flipped"
    boost: Positive | None = None  # factor γ on the update, greater than 0; none is n/m, enough to replace the model

    @property
    def relabels(self) -> bool:
        """Whether attackers replace their training labels."""
        return self.target == "flipped"

    def relabel(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return reversed labels."""
        return flipped_labels(labels, num_classes, None)

    def forge(self, seen: Seen) -> Tensor:
        """Return γ·(x − x̂)."""
        boost = len(seen.clients) / int(seen.hostile.sum()) if self.boost is None else self.boost
        updates = seen.own if self.target == "flipped" else seen.model.expand_as(seen.own)  # x − x̂
        return updates * boost
