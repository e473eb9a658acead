"""Tasks on their way to workers: each is put into the object store once, samples that several share once for all."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from turnout.engine.ray.transport import as_array, key_of, packed
from turnout.engine.task import Task

MOST_BYTES = 1 << 30  # of tensors that are kept for tasks which were not asked about last


class Stored(NamedTuple):
    """A tensor in the object store; it is kept, so that no other can have its address."""

    token: int
    tensor: Tensor
    ref: Any


class Parcel(NamedTuple):
    """A task, packed."""

    task: Task  # kept, so that no other can have its id
    text: bytes
    stored: list[Stored]


class TaskStore:
    """The tasks that workers may be asked about, by number; those that are long unused are let go."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.parcels: OrderedDict[int, Parcel] = OrderedDict()  # least recently used first
        self.tensors: dict[Any, Stored] = {}
        self.given = 0  # numbers and tokens

    def numbers_of(self, tasks: Sequence[Task]) -> list[int]:
        """Return the number of each task; pack those that are new."""
        known = {id(parcel.task): number for number, parcel in self.parcels.items()}
        for task in tasks:
            if id(task) not in known:
                known[id(task)] = self._next()
                text, tensors = packed(task)
                self.parcels[known[id(task)]] = Parcel(task, text, [self._stored(tensor) for tensor in tensors])
            self.parcels.move_to_end(known[id(task)])
        numbers = [known[id(task)] for task in tasks]
        self._let_go(set(numbers))
        return numbers

    def parcel(self, number: int) -> tuple[Any, ...]:
        """Return what a worker is sent of a task: the text, the tokens and the tensors."""
        _, text, stored = self.parcels[number]
        return text, [each.token for each in stored], *(each.ref for each in stored)

    def _stored(self, tensor: Tensor) -> Stored:
        key = key_of(tensor)
        if key not in self.tensors:
            self.tensors[key] = Stored(self._next(), tensor, self.ray.put(as_array(tensor)))
        return self.tensors[key]

    def _let_go(self, used: set[int]) -> None:
        """Forget tasks while they take too much, but none of those in use."""
        while self._bytes() > MOST_BYTES and (oldest := next(iter(self.parcels))) not in used:
            del self.parcels[oldest]
            needed = {each.token for parcel in self.parcels.values() for each in parcel.stored}
            self.tensors = {key: each for key, each in self.tensors.items() if each.token in needed}

    def _bytes(self) -> int:
        return sum(each.tensor.nbytes for each in self.tensors.values())

    def _next(self) -> int:
        self.given += 1
        return self.given
