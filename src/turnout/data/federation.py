"""A federation: who holds which samples, stored once.

Samples lie flat in one tensor; a client is a range of it (offsets), or a range of an index into it (order) when
several partitions share one store. Memory is the samples plus a few words per client.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from turnout.errors import DataError
from turnout.rows import is_finite
from turnout.streams import Floats, Ids


class Samples(NamedTuple):
    """A plain set of samples."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:  # the number of samples, not of fields
        return len(self.y)

    def to(self, device: torch.device) -> "Samples":
        """Return the same samples on a device."""
        return Samples(self.x.to(device), self.y.to(device))


class Slab(NamedTuple):
    """The samples of some clients: client k of the request owns order[starts[k] : starts[k] + sizes[k]]."""

    x: Tensor
    y: Tensor
    starts: Ids
    sizes: Ids
    order: Tensor | None  # None: the positions are rows of x themselves


@runtime_checkable
class Shares(Protocol):
    """Samples by client; `Held` keeps them in memory, a generator makes them when asked."""

    @property
    def sizes(self) -> Ids:
        """The number of samples of every client."""
        ...

    def fetch(self, clients: Ids) -> Slab:
        """Return the samples of these clients."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """Samples in memory, one range per client."""

    x: Tensor
    y: Tensor
    offsets: Ids  # client i owns positions offsets[i] : offsets[i + 1]
    order: Tensor | None = None  # a position's row in x, on the CPU; None when the samples lie in client order

    def __post_init__(self) -> None:
        held = len(self.y) if self.order is None else len(self.order)
        if len(self.x) != len(self.y):
            raise DataError(
                f"A federation needs one label per sample; got {len(self.x)} samples and {len(self.y)} labels. "
                "Check the arrays you pass."
            )
        if (
            len(self.offsets) < 2
            or self.offsets[0] != 0
            or self.offsets[-1] != held
            or (np.diff(self.offsets) < 0).any()
        ):
            raise DataError(
                f"A federation needs offsets that rise from 0 to {held}; got {self.offsets[:3]}…{self.offsets[-1:]}. "
                "Build it with turnout.data.from_clients, which sets them."
            )

    @property
    def sizes(self) -> Ids:
        """The number of samples of every client."""
        return np.diff(self.offsets)

    def fetch(self, clients: Ids) -> Slab:
        """Return the whole store with the ranges of these clients: nothing is copied."""
        starts = self.offsets[clients]
        return Slab(self.x, self.y, starts, self.offsets[clients + 1] - starts, self.order)

    def of(self, client: int) -> Samples:
        """Return one client's samples."""
        lo, hi = int(self.offsets[client]), int(self.offsets[client + 1])
        rows = torch.arange(lo, hi) if self.order is None else self.order[lo:hi]
        return Samples(self.x[rows], self.y[rows])

    def to(self, device: torch.device) -> "Held":
        """Return the same shares on a device."""
        return Held(self.x.to(device), self.y.to(device), self.offsets, self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """Clients and what they hold; the test set; what the server itself holds."""

    train: Shares
    holdout: Held | None = None  # each client's own test samples
    test: Samples | None = None  # the global test set
    server: Samples | None = None  # for filtering and server-assisted learning
    name: str = "federation"
    num_classes: int | None = None  # None for regression
    example_shape: tuple[int, ...] = ()
    client_names: tuple[str, ...] | None = None
    example: Tensor = field(default_factory=lambda: torch.zeros(0))  # one input, to shape and trace models with

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.train.sizes)

    @property
    def sizes(self) -> Ids:
        """n_i: training samples of each client."""
        return self.train.sizes

    @property
    def weights(self) -> Floats:
        """p_i = n_i / Σ n_j."""
        return np.asarray(self.sizes / self.sizes.sum())

    def label_counts(self, clients: Ids | None = None) -> Ids:
        """Return a (clients, classes) table of how many training samples of each class a client holds."""
        if self.num_classes is None:
            raise DataError(f"{self.name} has no classes to count: its targets are numbers, not labels.")
        ids = np.arange(self.num_clients) if clients is None else clients
        slab = self.train.fetch(ids)
        owner = np.repeat(np.arange(len(ids)), slab.sizes)
        rows = positions(slab)
        labels = slab.y[rows].cpu().numpy().reshape(len(owner))
        flat = np.bincount(owner * self.num_classes + labels, minlength=len(ids) * self.num_classes)
        return flat.reshape(len(ids), self.num_classes)

    def to(self, device: torch.device) -> "Federation":
        """Return the same federation with its samples on a device."""
        return replace(
            self,
            train=self.train.to(device) if isinstance(self.train, Held) else self.train,
            holdout=None if self.holdout is None else self.holdout.to(device),
            test=None if self.test is None else self.test.to(device),
            server=None if self.server is None else self.server.to(device),
        )


def positions(slab: Slab) -> Tensor:
    """Return the row in x of every sample of the slab, client by client."""
    ends = np.cumsum(slab.sizes)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - slab.sizes, slab.sizes)
    flat = torch.from_numpy(within + np.repeat(slab.starts, slab.sizes))
    return (flat if slab.order is None else slab.order[flat].long()).to(slab.y.device)


def checked(federation: Federation) -> Federation:
    """Return the federation, or raise one message about the first thing wrong with its data."""
    sizes = federation.sizes
    if (sizes < 1).any():
        empty = np.flatnonzero(sizes < 1)
        raise DataError(
            f"Every client needs at least one training sample; {len(empty)} of {len(sizes)} have none "
            f"(the first is client {empty[0]}). Use fewer clients, or a partition with min_size = 1 or more."
        )
    if not isinstance(federation.train, Held):
        return federation
    sets = [("training", federation.train.x, federation.train.y)]
    sets += [("hold-out", federation.holdout.x, federation.holdout.y)] if federation.holdout else []
    sets += [("test", *federation.test)] if federation.test else []
    sets += [("server", *federation.server)] if federation.server else []
    for which, x, y in sets:
        _check_values(which, x, y, federation)
    return federation


def _check_values(which: str, x: Tensor, y: Tensor, federation: Federation) -> None:
    for what, values in (("inputs", x), ("targets", y)):
        if values.is_floating_point() and not is_finite(values):
            bad = int((~torch.isfinite(values.flatten(1) if values.dim() > 1 else values[:, None]).all(1)).sum())
            raise DataError(
                f"The {which} {what} must be finite; {bad} of {len(values)} samples hold NaN or infinity. "
                "Clean or drop those samples before building the federation."
            )
    if federation.num_classes is not None and len(y) and not y.is_floating_point():
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= federation.num_classes:
            raise DataError(
                f"The {which} labels must lie in 0…{federation.num_classes - 1} for {federation.num_classes} classes; "
                f"got {low}…{high}. Renumber the labels, or set num_classes to {high + 1}."
            )


def from_clients(
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    test: Samples | tuple[Tensor, Tensor] | None = None,
    server: Samples | tuple[Tensor, Tensor] | None = None,
    num_classes: int | None = None,
    name: str = "clients",
) -> Federation:
    """Build a federation from one (x, y) pair per client."""
    if not clients:
        raise DataError("from_clients needs at least one client; got an empty list. Pass one (x, y) pair per client.")
    for place, pair in enumerate(clients):
        if not _is_pair(pair):
            size = f" of {len(pair)}" if isinstance(pair, tuple | list) else ""
            raise DataError(
                f"from_clients needs one (x, y) pair per client; client {place} came as {type(pair).__name__}{size}. "
                "Pass a list of pairs."
            )
    shapes = {tuple(torch.as_tensor(x).shape[1:]) for x, _ in clients}
    if len(shapes) > 1:
        raise DataError(f"Clients must share one input shape; got {sorted(shapes)}. Reshape or pad the inputs first.")
    x = torch.cat([torch.as_tensor(x).detach() for x, _ in clients])
    y = torch.cat([torch.as_tensor(y).detach() for _, y in clients])
    offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in clients])]).astype(np.int64)
    labelled = not y.is_floating_point() and y.dim() == 1
    if num_classes is None and labelled:
        sets = [y] + [torch.as_tensor(s[1]) for s in (test, server) if s is not None]
        num_classes = int(max(int(s.max()) for s in sets if len(s))) + 1
    return checked(
        Federation(
            train=Held(x, y, offsets),
            test=_samples(test),
            server=_samples(server),
            name=name,
            num_classes=num_classes,
            example_shape=tuple(x.shape[1:]),
            example=x[:1].clone(),
        )
    )


def _is_pair(given: object) -> bool:
    return isinstance(given, Samples) or (isinstance(given, tuple | list) and len(given) == 2)


def _samples(pair: Samples | tuple[Tensor, Tensor] | None) -> Samples | None:
    return None if pair is None else Samples(torch.as_tensor(pair[0]), torch.as_tensor(pair[1]))
