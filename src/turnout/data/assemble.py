"""From samples and positions to a federation: the server's share, each client's hold-out, one shared store."""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.array_types import Ids
from turnout.data.federation import Federation, Held, Samples, check_share, checked
from turnout.data.holdout import drawn_for_holdout, train_sizes
from turnout.errors import DataError
from turnout.streams import Streams


@runtime_checkable
class Source(Protocol):
    """Anything that can make a federation: a generator, a loader, a bridge."""

    def build(self, streams: Streams) -> Federation:
        """Return the federation; every draw comes from the streams."""
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
    num_classes: int | None,
    client_names: tuple[str, ...] | None = None,
    client_groups: tuple[str, ...] | None = None,
) -> Federation:
    """Build a federation over one store: nothing is copied but the server's samples.

    Args:
        name: what the federation is called in reports.
        store: every sample, once.
        parts: the positions in the store that each client holds.
        streams: the run's randomness; draws are keyed by "server-samples" and, per client, "holdout".
        test: the global test set.
        holdout: the share of each client's samples kept for its own test, rounded up; one always stays for training.
        server_samples: how many samples the server takes from the clients; none is left empty.
        num_classes: None for regression.
        client_names: one per client, where clients have names.
        client_groups: one per client, where clients belong to groups, such as regions.
    """
    _check_parts(store, parts, holdout)
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    pooled = np.concatenate(parts).astype(np.int64)
    server = None
    if server_samples:
        taken = _drawn_for_server(sizes, server_samples, streams)
        rows = torch.from_numpy(pooled[taken])
        server = Samples(store.x[rows], store.y[rows])
        owner = np.repeat(np.arange(len(sizes)), sizes)
        pooled, sizes = pooled[~taken], np.bincount(owner[~taken], minlength=len(sizes))
    kept = train_sizes(sizes, holdout)
    held_out = drawn_for_holdout(sizes, sizes - kept, streams)
    return checked(
        Federation(
            train=shared(store, pooled[~held_out], kept),
            holdout=shared(store, pooled[held_out], sizes - kept) if held_out.any() else None,
            test=test,
            server=server,
            name=name,
            num_classes=num_classes,
            example_shape=tuple(store.x.shape[1:]),
            client_names=client_names,
            client_groups=client_groups,
            example=store.x[:1].clone(),
        )
    )


def shared(store: Samples, pooled: Ids, sizes: Ids) -> Held:
    """Return shares of a store: client by client, `pooled` holds the rows it owns. No sample is copied."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    first = int(pooled[0]) if len(pooled) else 0
    if np.array_equal(pooled, np.arange(first, first + len(pooled))):  # already in client order: a view will do
        return Held(store.x[first : first + len(pooled)], store.y[first : first + len(pooled)], offsets)
    small = len(store) <= np.iinfo(np.int32).max
    return Held(store.x, store.y, offsets, torch.from_numpy(pooled.astype(np.int32 if small else np.int64)))


def laid_out(
    *, name: str, x: Tensor, y: Tensor, train: Ids, holdout: Ids, num_classes: int | None = None
) -> Federation:
    """Build a federation over samples that lie in order: all training samples by client, then all held-out ones.

    The test set is the union of the hold-outs; nothing is copied, and no index is needed.
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


def _drawn_for_server(sizes: Ids, count: int, streams: Streams) -> NDArray[np.bool_]:
    """Return which pooled samples the server takes; one random sample of every client is out of its reach."""
    most = int(np.maximum(sizes - 1, 0).sum())
    if not 0 < count <= most:
        raise DataError(
            f"server_samples must leave every client one sample; got {count} of {sizes.sum()} samples held by "
            f"{len(sizes)} clients. Set data.server_samples to at most {most}."
        )
    shuffled = streams.generator("server-samples").permutation(int(sizes.sum()))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    within_reach = np.ones(len(shuffled), dtype=bool)
    within_reach[np.unique(owner[shuffled], return_index=True)[1]] = False
    taken = np.zeros(len(shuffled), dtype=bool)
    taken[shuffled[within_reach][:count]] = True
    return taken


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
            f"A sample may belong to one client only; {len(twice)} are dealt twice or more (the first is sample "
            f"{twice[0]}). Make the partition's arrays disjoint."
        )
