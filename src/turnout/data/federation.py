"""A federation: who holds which samples, stored once.

Samples lie flat in one tensor; a client is a range of it (offsets), or a range of an index into it (order) when
several partitions share one store. Memory is the samples plus a few words per client.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.data.arrays import as_inputs, as_names, as_targets
from turnout.data.holdout import drawn_for_holdout, train_sizes
from turnout.errors import DataError
from turnout.rows import is_finite
from turnout.streams import Streams
from turnout.untrusted_input import MOST_LETTERS


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
    client_groups: tuple[str, ...] | None = None  # a label of each client, such as its region
    example: Tensor = field(default_factory=lambda: torch.zeros(0))  # one input, to shape and trace models with

    def __repr__(self) -> str:
        """Return how much of what there is; the samples themselves are not shown."""
        of = "targets are numbers" if self.num_classes is None else f"{self.num_classes} classes"
        held = {"hold-out": self.holdout and int(self.holdout.sizes.sum()), "test": self.test and len(self.test)}
        held["server"] = self.server and len(self.server)
        others = "".join(f", {count} {name}" for name, count in held.items() if count)
        counts = f"{self.num_clients} clients, {int(self.sizes.sum())} training{others} samples"
        return f"Federation({self.name!r}: {counts} of shape {self.example_shape}, {of})"

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
    _check_texts(federation)
    if not isinstance(federation.train, Held):
        return federation
    train = Samples(federation.train.x, federation.train.y)
    sets = [("training", train)]
    sets += [("hold-out", Samples(federation.holdout.x, federation.holdout.y))] if federation.holdout else []
    sets += [("test", federation.test)] if federation.test is not None else []
    sets += [("server", federation.server)] if federation.server is not None else []
    for which, samples in sets:
        _check_alike(which, samples, train)
        _check_values(which, *samples, federation)
    return federation


def _check_texts(federation: Federation) -> None:
    """Raise if names or groups are not one per client, or two clients share a name."""
    names, count = federation.client_names, federation.num_clients
    for what, texts in (("names", names), ("groups", federation.client_groups)):
        if texts is not None and len(texts) != count:
            raise DataError(
                f"Client {what} must be one per client; got {len(texts)} for {count} clients. "
                f"Pass {count} {what}, or none."
            )
        long = next((text for text in texts or () if not text.isprintable() or len(text) > MOST_LETTERS), None)
        if long is not None:
            raise DataError(
                f"Client {what} must be at most {MOST_LETTERS} printable characters each; got {long!r:.60}. "
                "Shorten it, and take line breaks out."
            )
    if names is not None and len(set(names)) < count:
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Client names must differ; {twice!r} names {names.count(twice)} clients. Rename the others.")


def _check_alike(which: str, samples: Samples, train: Samples) -> None:
    """Raise if a set of samples cannot be measured with a model of the training samples."""
    if len(samples.x) != len(samples.y) or not len(samples):
        raise DataError(
            f"The {which} set needs one target per input, and at least one; got {len(samples.x)} inputs and "
            f"{len(samples.y)} targets. Check the arrays you pass, or leave the set out."
        )
    for what, own, needed in (("inputs", samples.x, train.x), ("targets", samples.y, train.y)):
        if own.shape[1:] != needed.shape[1:]:
            raise DataError(
                f"The {which} {what} must have the shape of the training {what}, {tuple(needed.shape[1:])} a sample; "
                f"got {tuple(own.shape[1:])}. Prepare both in the same way."
            )
    if samples.y.is_floating_point() != train.y.is_floating_point():
        raise DataError(
            f"The {which} targets must be of the kind of the training targets, {_kind(train.y)}; got "
            f"{_kind(samples.y)}. Convert one of them."
        )


def _kind(y: Tensor) -> str:
    return "real numbers" if y.is_floating_point() else "labels"


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
    clients: Iterable[tuple[Any, Any]],
    *,
    test: Samples | tuple[Any, Any] | None = None,
    server: Samples | tuple[Any, Any] | None = None,
    holdout: float | Sequence[tuple[Any, Any] | None] = 0.0,
    names: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    num_classes: int | None = None,
    name: str = "clients",
) -> Federation:
    """Build a federation from one (x, y) pair per client.

    Args:
        clients: (x, y) of each client: tensors, arrays or lists.
        test: the global test set, (x, y).
        server: what the server itself holds, (x, y).
        holdout: the share of each client's samples kept for its own test, rounded up and drawn by key, the same for
            every seed; one sample always trains. Or one (x, y) pair per client, None for a client without.
        names: what each client is called in frames and reports; left out, clients have numbers.
        groups: a label of each client, such as its region.
        num_classes: left out, one more than the largest label; None stays for targets that are not labels.
        name: what the federation is called in reports.
    """
    pairs = [as_samples(given, f"Client {place}'s") for place, given in enumerate(clients)]
    if not pairs:
        raise DataError("from_clients needs at least one client; got an empty list. Pass one (x, y) pair per client.")
    shapes = {tuple(x.shape[1:]) for x, _ in pairs}
    if len(shapes) > 1:
        raise DataError(f"Clients must share one input shape; got {sorted(shapes)}. Reshape or pad the inputs first.")
    given = _joined(pairs)
    train, held_out = _split(given, holdout) if isinstance(holdout, float | int) else (given, _own(holdout, given))
    test, server = sample_set(test, "The test", given), sample_set(server, "The server's", given)
    return checked(
        Federation(
            train=train,
            holdout=held_out,
            test=test,
            server=server,
            name=name,
            num_classes=class_count([given, held_out, test, server]) if num_classes is None else num_classes,
            example_shape=tuple(given.x.shape[1:]),
            client_names=as_names(names, "names"),
            client_groups=as_names(groups, "groups"),
            example=given.x[:1].clone(),
        )
    )


def as_samples(given: Any, whose: str) -> Samples:
    """Return an (x, y) pair as samples, or raise one message about what it is instead."""
    if not isinstance(given, tuple | list) or len(tuple(given)) != 2:
        size = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        raise DataError(
            f"{whose} samples must be a pair (x, y); got {type(given).__name__}{size}. Pass (inputs, targets)."
        )
    x, y = as_inputs(given[0], f"{whose} inputs"), as_targets(given[1], f"{whose} targets")
    if len(x) != len(y):
        raise DataError(
            f"{whose} samples need one target per input; got {len(x)} inputs and {len(y)} targets. "
            "Check the arrays you pass."
        )
    return Samples(x, y)


def sample_set(given: Any, whose: str, like: Held | Samples) -> Samples | None:
    """Return a set of samples with inputs in the precision of the clients'; None stays None."""
    if given is None:
        return None
    x, y = as_samples(given, whose)
    is_real = x.is_floating_point() and like.x.is_floating_point()
    return Samples(x.to(like.x.dtype) if is_real else x, y)


def class_count(sets: Sequence[Held | Samples | None]) -> int | None:
    """Return one more than the largest label of some sets of samples, the first of which decides whether it has any."""
    labels = [samples.y for samples in sets if samples is not None]
    if labels[0].is_floating_point() or labels[0].dim() != 1:
        return None
    return max(int(y.max()) for y in labels if len(y) and not y.is_floating_point()) + 1


def check_share(holdout: float) -> None:
    """Raise if a hold-out is no share of a client's samples."""
    if not 0.0 <= holdout < 1.0:
        raise DataError(f"holdout must lie in [0, 1); got {holdout}. Set data.holdout to the share to keep, e.g. 0.1.")


def _joined(pairs: Sequence[Samples]) -> Held:
    """Return the samples of all clients one after another."""
    offsets = np.concatenate([[0], np.cumsum([len(pair) for pair in pairs])]).astype(np.int64)
    return Held(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), offsets)


def _split(held: Held, holdout: float) -> tuple[Held, Held | None]:
    """Return each client's training samples and its hold-out, a share that is drawn by key."""
    check_share(holdout)
    kept = train_sizes(held.sizes, holdout)
    drawn = drawn_for_holdout(held.sizes, held.sizes - kept, Streams(0))
    if not drawn.any():
        return held, None
    offsets = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (kept, held.sizes - kept)]
    rows = [torch.from_numpy(np.flatnonzero(mask)) for mask in (~drawn, drawn)]
    train, held_out = (Held(held.x[r], held.y[r], o) for r, o in zip(rows, offsets, strict=True))
    return train, held_out


def _own(holdout: Sequence[Any], train: Held) -> Held | None:
    """Return the hold-outs that were given, one pair per client."""
    count = len(train.sizes)
    if isinstance(holdout, str) or not hasattr(holdout, "__len__") or len(holdout) != count:
        got = f"{len(holdout)} entries" if isinstance(holdout, tuple | list) else f"{holdout!r:.60}"
        raise DataError(
            f"holdout must be a share in [0, 1), or one (x, y) pair per client; got {got} for {count} clients. "
            "Pass None for a client that has none."
        )
    none = Samples(train.x[:0], train.y[:0])
    found = [sample_set(given, f"Client {place}'s hold-out", train) for place, given in enumerate(holdout)]
    for place, samples in enumerate(found):
        if samples is not None and samples.x.shape[1:] != train.x.shape[1:]:
            raise DataError(
                f"The hold-out inputs must have the shape of the training inputs, {tuple(train.x.shape[1:])} a sample; "
                f"client {place}'s have {tuple(samples.x.shape[1:])}. Prepare both in the same way."
            )
    return _joined([samples or none for samples in found]) if any(found) else None
