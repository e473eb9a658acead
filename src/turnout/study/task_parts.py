"""What a study leaves to its data: the loss, and how many outputs a model needs. Devices import this module, too."""

from math import prod

import numpy as np

from turnout.data.federation import Federation
from turnout.losses import Loss, cross_entropy, squared_error
from turnout.study.study import Study


def loss_of(version: Study, federation: Federation) -> Loss:
    """Return the loss that a study minimises: its own, or by the kind of its targets."""
    if version.loss is not None:
        return version.loss
    return squared_error if federation.num_classes is None else cross_entropy


def num_outputs(federation: Federation) -> int:
    """Return how many outputs a model needs: one per class, or one per number of a target."""
    if federation.num_classes is not None:
        return federation.num_classes
    targets = federation.train.fetch(np.zeros(1, dtype=np.int64)).y
    return max(prod(targets.shape[1:]), 1)
