"""Changes the training labels of some clients of a federation, for attacks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.data.federation import Federation, Held, Shares, Slab, positions
from turnout.errors import DataError

Relabel = Callable[[Tensor, int], Tensor]  # (labels, number of classes) -> labels


def relabelled(federation: Federation, who: Any, relabel: Relabel) -> Federation:
    """Return a federation in which some clients train on changed labels; inputs are shared, not copied.

    Args:
        federation: the federation with the true labels.
        who: one bool per client: whether its labels change.
        relabel: function of (labels, number of classes) that returns the changed labels.
    """
    classes = federation.num_classes
    if classes is None:
        raise DataError(
            f"An attack on labels needs data with classes; {federation.name} has none. "
            "Choose another attack, or data with labels."
        )
    train = federation.train
    if not isinstance(train, Held):
        return replace(federation, train=Relabelled(train, who, relabel, classes))
    clients = np.flatnonzero(who)
    y = _changed(train.fetch(clients), np.ones(len(clients), dtype=bool), relabel, classes)
    return replace(federation, train=replace(train, y=y))


@dataclass(frozen=True, slots=True)
class Relabelled:
    """Samples that are generated on demand, with the labels of some clients changed."""

    shares: Shares  # the samples with their true labels
    who: Any  # one bool per client: whether its labels change
    relabel: Relabel  # the change of labels
    classes: int  # number of classes C

    @property
    def sizes(self) -> Ids:
        """The number of samples of every client."""
        return self.shares.sizes

    def fetch(self, clients: Ids) -> Slab:
        """Return the samples of these clients, with changed labels."""
        slab = self.shares.fetch(clients)
        return slab._replace(y=_changed(slab, self.who[clients], self.relabel, self.classes))


def _changed(slab: Slab, who: Any, relabel: Relabel, classes: int) -> Tensor:
    """Return all labels of the slab, with those of some clients changed."""
    rows = positions(slab)[torch.from_numpy(np.repeat(who, slab.sizes))]
    y = slab.y.clone()
    y[rows] = relabel(y[rows], classes)
    return y
