"""The same federation with the training labels of some clients changed."""

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
    """Return the federation in which these clients train on other labels; inputs are shared, not copied.

    Args:
        federation: as it is.
        who: a bool per client.
        relabel: what becomes of a label; the second argument is the number of classes.
    """
    classes = federation.num_classes
    if classes is None:
        raise DataError(
            f"Labels can only be changed where there are classes; {federation.name} has none. "
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
    """Shares that are made when asked, with the labels of some clients changed."""

    shares: Shares
    who: Any  # bool per client
    relabel: Relabel
    classes: int

    @property
    def sizes(self) -> Ids:
        """The number of samples of every client."""
        return self.shares.sizes

    def fetch(self, clients: Ids) -> Slab:
        """Return the samples of these clients, labels changed."""
        slab = self.shares.fetch(clients)
        return slab._replace(y=_changed(slab, self.who[clients], self.relabel, self.classes))


def _changed(slab: Slab, who: Any, relabel: Relabel, classes: int) -> Tensor:
    """Return the slab's labels, all of them, with those of some of its clients changed."""
    rows = positions(slab)[torch.from_numpy(np.repeat(who, slab.sizes))]
    y = slab.y.clone()
    y[rows] = relabel(y[rows], classes)
    return y
