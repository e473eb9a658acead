"""What a frozen part of a module makes of the samples, computed once for all clients and kept in place of them.

The part of a module that depends on data and on frozen parameters alone gives the same values in every round. Where
they fit in memory they are computed for a whole store of samples when it is first seen, and the rest of the module is
trained on them.
"""

import copy
from collections.abc import MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from turnout.data.federation import Slab
from turnout.engine.module_probe import first_sample
from turnout.engine.task import Task
from turnout.engine.vectorised.lowering import Lowered

MOST_BYTES = 1 << 30  # of what is stored for one store of samples
CHUNK_VALUES = 4 << 20  # numbers of samples in one forward pass


class StoredInputs:
    """The inputs of a module's trained part, by store of samples."""

    def __init__(self, lowered: Lowered, task: Task) -> None:
        self.lowered = lowered
        self.tables: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()
        given = lowered.inputs(first_sample(task).x)
        self.shapes = [each.shape[1:] for each in given]
        self.values = sum(shape.numel() for shape in self.shapes)
        self.program = copy.copy(lowered)  # the trained part alone
        self.program.shapes = self.shapes

    def fits(self, slab: Slab) -> bool:
        """Whether there is room for what is stored of these samples."""
        return len(slab.x) * self.values * slab.x.element_size() <= MOST_BYTES

    def of(self, slab: Slab) -> Slab:
        """Return the same clients with stored values for samples."""
        table = self.tables.get(slab.x)
        if table is None:
            table = self.tables[slab.x] = self._computed(slab.x)
        return slab._replace(x=table)

    def _computed(self, x: Tensor) -> Tensor:
        size = max(1, CHUNK_VALUES // max(1, x[0].numel(), self.values))
        given = (self.lowered.inputs(some) for some in torch.split(x, size))
        return torch.cat([torch.cat([each.flatten(1) for each in parts], dim=1) for parts in given])


def stored_inputs(lowered: Lowered, task: Task) -> StoredInputs | None:
    """Return the stored inputs of a module with a frozen part; None where there is nothing worth storing."""
    if not lowered.worth_storing:
        return None
    given = lowered.inputs(first_sample(task).x)
    is_alike = all(isinstance(each, Tensor) and each.dim() > 1 and each.dtype == given[0].dtype for each in given)
    return StoredInputs(lowered, task) if is_alike else None
