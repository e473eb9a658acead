"""Label flip: attackers train honestly on wrong labels.

Intuition: the update looks ordinary; only what the attacker learned is wrong.

    y → C − 1 − y        or labels[y] if a map is set

Only training labels change. The test set, the server's samples and the clients' hold-outs keep their labels.

Reduces to: no attack when the map is 0, 1, …, C − 1.
Reference: Tolpegin, Truex, Gursoy, Liu. ESORICS 2020. arXiv:2007.08432; the reversal is Fang et al. 2020's.
"""

import torch
from torch import Tensor

from turnout.attacks.attack import Attackers
from turnout.errors import ConfigError
from turnout.settings import CountOrZero, rule


def flipped_labels(labels: Tensor, num_classes: int, to: tuple[int, ...] | None) -> Tensor:
    """Return to[y] of each label y, or C − 1 − y without a map."""
    if to is None:
        return num_classes - 1 - labels
    if len(to) != num_classes or not all(0 <= label < num_classes for label in to):
        raise ConfigError(
            f"LabelFlip needs labels with a class from 0 to {num_classes - 1} for each of {num_classes} classes; "
            f"got {list(to)}. Change attack.labels, or leave it out to reverse them.",
            setting="attack.labels",
        )
    return torch.tensor(to, dtype=labels.dtype, device=labels.device)[labels.long()]


@rule("attack")
class LabelFlip(Attackers):
    """Honest training on wrong labels."""

    labels: tuple[CountOrZero, ...] | None = None  # new label of each class 0 … C − 1, in order; none is C − 1 − y

    def relabel(self, labels: Tensor, num_classes: int) -> Tensor:
        """Return the labels that attackers train on."""
        return flipped_labels(labels, num_classes, self.labels)
