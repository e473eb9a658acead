"""A federation: the samples of every client, the test set, the server's own samples and a public set of inputs.

All samples are in one tensor, each once. A client is a range of that tensor (offsets). If several partitions share one
store, a client is a range of an index into it (order). Memory is the samples plus a few numbers per client.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.data.arrays import as_inputs, as_names, as_targets
from turnout.data.holdout import check_share, drawn_for_holdout, train_sizes
from turnout.data.sample_checks import check_alike, check_public, check_texts, check_values
from turnout.drift import Drift
from turnout.errors import DataError
from turnout.streams import Streams


class Samples(NamedTuple):
    """A set of samples."""

    x: Tensor  # inputs, one per sample
    y: Tensor  # targets, one per sample

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
    order: Tensor | None  # row of x of each position; None if the positions are rows of x themselves


@runtime_checkable
class Shares(Protocol):
    """The samples of all clients: `Held` has them in memory, a generator computes them on demand."""

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
    offsets: Ids  # client i has positions offsets[i] : offsets[i + 1]
    order: Tensor | None = None  # row of x of each position, on the CPU; None if the samples are in client order

    def __post_init__(self) -> None:
        count = len(self.y) if self.order is None else len(self.order)
        if len(self.x) != len(self.y):
            raise DataError(
                f"A federation needs one label per sample; got {len(self.x)} samples and {len(self.y)} labels. "
                "Check the arrays you pass."
            )
        if (
            len(self.offsets) < 2
            or self.offsets[0] != 0
            or self.offsets[-1] != count
            or (np.diff(self.offsets) < 0).any()
        ):
            raise DataError(
                f"A federation needs offsets that rise from 0 to {count}; got {self.offsets[:3]}…{self.offsets[-1:]}. "
                "Build it with turnout.data.from_clients, which sets them."
            )

    @property
    def sizes(self) -> Ids:
        """The number of samples of every client."""
        return np.diff(self.offsets)

    def fetch(self, clients: Ids) -> Slab:
        """Return the whole store with the ranges of these clients, without a copy."""
        starts = self.offsets[clients]
        return Slab(self.x, self.y, starts, self.offsets[clients + 1] - starts, self.order)

    def of(self, client: int) -> Samples:
        """Return one client's samples."""
        lo, hi = int(self.offsets[client]), int(self.offsets[client + 1])
        rows = torch.arange(lo, hi) if self.order is None else self.order[lo:hi]
        return Samples(self.x[rows], self.y[rows])

    def to(self, device: torch.device) -> "Held":
        """Return the same samples on a device."""
        return Held(self.x.to(device), self.y.to(device), self.offsets, self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """The samples of the clients, the test set and the samples of the server."""

    train: Shares  # training samples of each client
    holdout: Held | None = None  # hold-out of each client: its own test samples
    test: Samples | None = None  # the global test set
    server: Samples | None = None  # samples of the server, for filters and server-assisted rounds
    public: Tensor | None = None  # inputs without labels that the server and all clients have, for distillation
    name: str = "federation"  # name in reports
    num_classes: int | None = None  # number of classes C; None for regression
    example_shape: tuple[int, ...] = ()  # shape of one input
    client_names: tuple[str, ...] | None = None  # name of each client
    client_groups: tuple[str, ...] | None = None  # group of each client, such as its region
    example: Tensor = field(default_factory=lambda: torch.zeros(0))  # one input, to build and trace models with
    drift: Drift | None = None  # how the samples change with time; None: they do not
    stages: tuple["Federation", ...] = ()  # with drift: the federation at each time step on which models are measured

    def __repr__(self) -> str:
        """Return the numbers of clients, samples and classes."""
        targets = "targets are numbers" if self.num_classes is None else f"{self.num_classes} classes"
        sets = {"hold-out": self.holdout and int(self.holdout.sizes.sum()), "test": self.test and len(self.test)}
        sets["server"] = self.server and len(self.server)
        sets["public"] = None if self.public is None else len(self.public)
        others = "".join(f", {count} {name}" for name, count in sets.items() if count)
        counts = f"{self.num_clients} clients, {int(self.sizes.sum())} training{others} samples"
        return f"Federation({self.name!r}: {counts} of shape {self.example_shape}, {targets})"

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.train.sizes)

    @property
    def sizes(self) -> Ids:
        """Number of training samples n_i of each client."""
        return self.train.sizes

    @property
    def weights(self) -> Floats:
        """Weight p_i = n_i / Σ_j n_j of each client in the objective."""
        return np.asarray(self.sizes / self.sizes.sum())

    def at(self, round: int) -> "Federation":
        """Return the federation as it is in a round; its hold-outs are what models are measured on after the round."""
        return self if self.drift is None else self.stages[self.drift.measured_step(round)]

    def label_counts(self, clients: Ids | None = None) -> Ids:
        """Return a (clients, classes) table of the number of training samples per client and class."""
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
            public=None if self.public is None else self.public.to(device),
            stages=tuple(stage.to(device) for stage in self.stages),
        )


def positions(slab: Slab) -> Tensor:
    """Return the row of x of every sample of the slab, one client after another."""
    ends = np.cumsum(slab.sizes)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - slab.sizes, slab.sizes)
    flat = torch.from_numpy(within + np.repeat(slab.starts, slab.sizes))
    return (flat if slab.order is None else slab.order[flat].long()).to(slab.y.device)


def checked(federation: Federation) -> Federation:
    """Return the federation; raise DataError for the first error in its data."""
    sizes = federation.sizes
    if (sizes < 1).any():
        empty = np.flatnonzero(sizes < 1)
        raise DataError(
            f"Every client needs at least one training sample; {len(empty)} of {len(sizes)} have none "
            f"(the first is client {empty[0]}). Use fewer clients, or a partition with min_size = 1 or more."
        )
    check_texts(federation)
    if not isinstance(federation.train, Held):
        return federation
    train = Samples(federation.train.x, federation.train.y)
    sets = [("training", train)]
    sets += [("hold-out", Samples(federation.holdout.x, federation.holdout.y))] if federation.holdout else []
    sets += [("test", federation.test)] if federation.test is not None else []
    sets += [("server", federation.server)] if federation.server is not None else []
    for which, samples in sets:
        check_alike(which, samples, train)
        check_values(which, *samples, federation)
    if federation.public is not None:
        check_public(federation.public, train.x)
    return federation


def from_clients(
    clients: Iterable[tuple[Any, Any]],
    *,
    test: Samples | tuple[Any, Any] | None = None,
    server: Samples | tuple[Any, Any] | None = None,
    public: Any = None,
    holdout: float | Sequence[tuple[Any, Any] | None] = 0.0,
    names: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    num_classes: int | None = None,
    name: str = "clients",
) -> Federation:
    """Build a federation from one (x, y) pair per client.

    Args:
        clients: pair (x, y) of each client: tensors, arrays or lists. Integers in y, of shape (n,) or (n, 1), are class
            labels; floats are the targets of a regression.
        test: the global test set, (x, y).
        server: samples of the server, (x, y).
        public: inputs without labels that the server and all clients have, for Fed-ET and COMET.
        holdout: fraction of each client's samples in its own test set, rounded up; at least one sample remains for
            training, and the draw is the same for every seed. Or one pair (x, y) per client, None for no hold-out.
        names: name of each client in frames and reports; None numbers the clients.
        groups: group of each client, such as its region.
        num_classes: number of classes C; None is one more than the largest label, or regression if targets are floats.
        name: name of the federation in reports.
    """
    if not isinstance(clients, Iterable):
        raise DataError(f"from_clients needs a list of clients; got {clients!r:.60}. Pass one (x, y) pair per client.")
    pairs = [as_samples(pair, f"Client {client}'s") for client, pair in enumerate(clients)]
    if not pairs:
        raise DataError("from_clients needs at least one client; got an empty list. Pass one (x, y) pair per client.")
    shapes = {tuple(x.shape[1:]) for x, _ in pairs}
    if len(shapes) > 1:
        raise DataError(f"Clients must share one input shape; got {sorted(shapes)}. Reshape or pad the inputs first.")
    joined = _joined(pairs)
    if isinstance(holdout, float | int):
        train, held_out = _split(joined, holdout)
    else:
        train, held_out = joined, _joined_holdouts(holdout, joined)
    test, server = sample_set(test, "The test", joined), sample_set(server, "The server's", joined)
    return checked(
        Federation(
            train=train,
            holdout=held_out,
            test=test,
            server=server,
            public=public_inputs(public, joined),
            name=name,
            num_classes=class_count([joined, held_out, test, server]) if num_classes is None else num_classes,
            example_shape=tuple(joined.x.shape[1:]),
            client_names=as_names(names, "names"),
            client_groups=as_names(groups, "groups"),
            example=joined.x[:1].clone(),
        )
    )


def as_samples(pair: Any, whose: str) -> Samples:
    """Return a pair (x, y) as samples; raise DataError if it is not a pair of arrays of equal length."""
    if not isinstance(pair, tuple | list) or len(tuple(pair)) != 2:
        size = f" of {len(pair)}" if isinstance(pair, tuple | list) else ""
        raise DataError(
            f"{whose} samples must be a pair (x, y); got {type(pair).__name__}{size}. Pass (inputs, targets)."
        )
    x, y = as_inputs(pair[0], f"{whose} inputs"), as_targets(pair[1], f"{whose} targets")
    if len(x) != len(y):
        raise DataError(
            f"{whose} samples need one target per input; got {len(x)} inputs and {len(y)} targets. "
            "Check the arrays you pass."
        )
    return Samples(x, y)


def sample_set(pair: Any, whose: str, like: Held | Samples) -> Samples | None:
    """Return a set of samples with inputs in the precision of the clients' inputs; None stays None."""
    if pair is None:
        return None
    x, y = as_samples(pair, whose)
    is_float = x.is_floating_point() and like.x.is_floating_point()
    return Samples(x.to(like.x.dtype) if is_float else x, y)


def public_inputs(inputs: Any, like: Held | Samples) -> Tensor | None:
    """Return inputs without labels in the precision of the clients' inputs; None stays None."""
    if inputs is None:
        return None
    x = as_inputs(inputs, "The public inputs")
    return x.to(like.x.dtype) if x.is_floating_point() and like.x.is_floating_point() else x


def class_count(sets: Sequence[Held | Samples | None]) -> int | None:
    """Return one more than the largest label of all sets; None if the targets of the first set are not class labels."""
    labels = [samples.y for samples in sets if samples is not None]
    if labels[0].is_floating_point() or labels[0].dim() != 1:
        return None
    return max(int(y.max()) for y in labels if len(y) and not y.is_floating_point()) + 1


def _joined(pairs: Sequence[Samples]) -> Held:
    """Return the samples of all clients, one client after another."""
    offsets = np.concatenate([[0], np.cumsum([len(pair) for pair in pairs])]).astype(np.int64)
    return Held(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), offsets)


def _split(held: Held, holdout: float) -> tuple[Held, Held | None]:
    """Return each client's training samples and its hold-out, a random fraction of its samples."""
    check_share(holdout)
    training = train_sizes(held.sizes, holdout)
    is_held_out = drawn_for_holdout(held.sizes, held.sizes - training, Streams(0))
    if not is_held_out.any():
        return held, None
    offsets = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (training, held.sizes - training)]
    rows = [torch.from_numpy(np.flatnonzero(mask)) for mask in (~is_held_out, is_held_out)]
    train, held_out = (Held(held.x[r], held.y[r], o) for r, o in zip(rows, offsets, strict=True))
    return train, held_out


def _joined_holdouts(holdout: Sequence[Any], train: Held) -> Held | None:
    """Return the hold-outs of all clients, from one pair (x, y) or None per client."""
    count = len(train.sizes)
    if isinstance(holdout, str) or not hasattr(holdout, "__len__") or len(holdout) != count:
        got = f"{len(holdout)} entries" if isinstance(holdout, tuple | list) else f"{holdout!r:.60}"
        raise DataError(
            f"holdout must be a fraction in [0, 1), or one (x, y) pair per client; got {got} for {count} clients. "
            "Pass None for a client without a hold-out."
        )
    empty = Samples(train.x[:0], train.y[:0])
    sets = [sample_set(pair, f"Client {client}'s hold-out", train) for client, pair in enumerate(holdout)]
    for client, samples in enumerate(sets):
        if samples is not None and samples.x.shape[1:] != train.x.shape[1:]:
            raise DataError(
                f"The hold-out inputs must have the shape of the training inputs, {tuple(train.x.shape[1:])} a sample; "
                f"client {client}'s have {tuple(samples.x.shape[1:])}. Prepare both in the same way."
            )
    return _joined([samples or empty for samples in sets]) if any(sets) else None
