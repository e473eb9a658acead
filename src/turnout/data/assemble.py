"""Builds a federation from all samples and the positions of each client's samples.

Moves samples to the server and to the public set, draws each client's hold-out, and stores every sample once.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.array_types import Ids
from turnout.data.federation import Federation, Held, Samples, checked
from turnout.data.holdout import check_share, drawn_for_holdout, train_sizes
from turnout.errors import DataError
from turnout.streams import Streams


@runtime_checkable
class Source(Protocol):
    """A data set: a generator, a loader of files, or a converter."""

    def build(self, streams: Streams) -> Federation:
        """Return the federation; all its randomness comes from the streams."""
        ...


def assemble(
    *,
    name: str,
    store: Samples,
    parts: list[Ids],
    streams: Streams,
    test: Samples | None = None,
    holdout: float = 0.0,
    server_samples: int = 0,
    public_samples: int = 0,
    num_classes: int | None,
    client_names: tuple[str, ...] | None = None,
    client_groups: tuple[str, ...] | None = None,
) -> Federation:
    """Build a federation over one store of samples; only samples that clients give away are copied.

    Args:
        name: name of the federation in reports.
        store: all samples of all clients, each once.
        parts: positions in the store of each client's samples.
        streams: randomness of the run; the purposes are "server-samples", "public-inputs" and, per client,
            "holdout".
        test: the global test set.
        holdout: fraction of each client's samples in its own test set, rounded up; one sample at least is for training.
        server_samples: number of samples moved from clients to the server; every client keeps at least one.
        public_samples: number of samples whose inputs, without labels, move from clients to the public set; every
            client keeps at least one.
        num_classes: number of classes C; None for regression.
        client_names: name of each client, or None.
        client_groups: group of each client, such as its region, or None.
    """
    _check_parts(store, parts, holdout)
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    pooled = np.concatenate(parts).astype(np.int64)
    server = public = None
    if server_samples:
        rows, pooled, sizes = _taken(pooled, sizes, ("server_samples", server_samples), streams)
        server = Samples(store.x[rows], store.y[rows])
    if public_samples:
        rows, pooled, sizes = _taken(pooled, sizes, ("public_samples", public_samples), streams)
        public = store.x[rows]
    training = train_sizes(sizes, holdout)
    is_held_out = drawn_for_holdout(sizes, sizes - training, streams)
    return checked(
        Federation(
            train=shared(store, pooled[~is_held_out], training),
            holdout=shared(store, pooled[is_held_out], sizes - training) if is_held_out.any() else None,
            test=test,
            server=server,
            public=public,
            name=name,
            num_classes=num_classes,
            example_shape=tuple(store.x.shape[1:]),
            client_names=client_names,
            client_groups=client_groups,
            example=store.x[:1].clone(),
        )
    )


def shared(store: Samples, pooled: Ids, sizes: Ids) -> Held:
    """Return each client's samples as ranges over a shared store, without a copy.

    Args:
        store: all samples.
        pooled: positions of the clients' samples in the store, one client after another.
        sizes: number of samples of each client.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = int(pooled[0]) if len(pooled) else 0
    if np.array_equal(pooled, np.arange(first, first + len(pooled))):  # already in client order: a view suffices
        return Held(store.x[first : first + len(pooled)], store.y[first : first + len(pooled)], offsets)
    small = len(store) <= np.iinfo(np.int32).max
    return Held(store.x, store.y, offsets, torch.from_numpy(pooled.astype(np.int32 if small else np.int64)))


def laid_out(
    *, name: str, x: Tensor, y: Tensor, train: Ids, holdout: Ids, num_classes: int | None = None
) -> Federation:
    """Build a federation over samples in order: all training samples by client, then all hold-out samples by client.

    The test set is the union of the hold-outs. No sample is copied and no index is needed.
    """
    cut = int(train.sum())
    offsets = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (train, holdout)]
    has_holdout = bool(holdout.any())
    return checked(
        Federation(
            train=Held(x[:cut], y[:cut], offsets[0]),
            holdout=Held(x[cut:], y[cut:], offsets[1]) if has_holdout else None,
            test=Samples(x[cut:], y[cut:]) if has_holdout else None,
            name=name,
            num_classes=num_classes,
            example_shape=tuple(x.shape[1:]),
            example=x[:1].clone(),
        )
    )


PURPOSES = {"server_samples": "server-samples", "public_samples": "public-inputs"}  # of the draws, by setting


def _taken(pooled: Ids, sizes: Ids, given: tuple[str, int], streams: Streams) -> tuple[Tensor, Ids, Ids]:
    """Return the positions of samples that clients give away, by the setting that says how many, and what is left."""
    is_taken = _drawn_from_clients(sizes, *given, streams)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    left = np.bincount(owner[~is_taken], minlength=len(sizes))
    return torch.from_numpy(pooled[is_taken]), pooled[~is_taken], left


def _drawn_from_clients(sizes: Ids, setting: str, count: int, streams: Streams) -> NDArray[np.bool_]:
    """Return a mask of the samples that clients give away; one random sample of every client is excluded."""
    most = int(np.maximum(sizes - 1, 0).sum())
    if not 0 < count <= most:
        raise DataError(
            f"{setting} must leave every client one sample; got {count} of {sizes.sum()} samples held by "
            f"{len(sizes)} clients. Set data.{setting} to at most {most}."
        )
    shuffled = streams.generator(PURPOSES[setting]).permutation(int(sizes.sum()))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    may_move = np.ones(len(shuffled), dtype=bool)
    may_move[np.unique(owner[shuffled], return_index=True)[1]] = False
    is_taken = np.zeros(len(shuffled), dtype=bool)
    is_taken[shuffled[may_move][:count]] = True
    return is_taken


def _check_parts(store: Samples, parts: list[Ids], holdout: float) -> None:
    if not parts:
        raise DataError("A federation needs at least one client; got none. Set data.clients to 1 or more.")
    check_share(holdout)
    pooled = np.concatenate(parts)
    if len(pooled) and not (pooled.min() >= 0 and pooled.max() < len(store)):
        raise DataError(
            f"A partition must point into the {len(store)} samples; got positions {pooled.min()}…{pooled.max()}. "
            "Return positions from 0, as turnout.data.partition does."
        )
    twice = np.flatnonzero(np.bincount(pooled.astype(np.int64), minlength=1) > 1)
    if len(twice):
        raise DataError(
            f"A sample may belong to one client only; {len(twice)} are assigned more than once (the first is sample "
            f"{twice[0]}). Make the partition's arrays disjoint."
        )
