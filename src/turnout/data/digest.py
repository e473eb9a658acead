"""Digest of a federation: it changes if any sample, label, client, name or group changes."""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from turnout.data.federation import Federation, Held, Samples, Shares, positions

BYTES = 12


def federation_digest(federation: Federation) -> str:
    """Return the digest of all data of a federation; for clients generated on demand, of all sizes and of client 0."""
    texts = (federation.num_classes, federation.client_names, federation.client_groups)
    return tensor_digest([*_parts(federation)], about=repr(texts))


def tensor_digest(named: list[tuple[str, Tensor]], about: str = "") -> str:
    """Return a short digest of the names, types, shapes and values of tensors."""
    digest = blake2b(about.encode(), digest_size=BYTES)
    for name, value in named:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _parts(federation: Federation) -> Iterator[tuple[str, Tensor]]:
    yield from _shares("train", federation.train)
    if federation.holdout is not None:
        yield from _shares("holdout", federation.holdout)
    for name, samples in (("test", federation.test), ("server", federation.server)):
        yield from () if samples is None else _samples(name, samples)
    if federation.public is not None:
        yield "public.x", federation.public
    if federation.drift is not None:  # the time steps are parts of the same samples
        yield "drift.sizes", torch.from_numpy(np.ascontiguousarray(federation.drift.sizes))
        yield "drift.concepts", torch.from_numpy(np.ascontiguousarray(federation.drift.concepts))
        yield "drift.rounds_per_step", torch.tensor([federation.drift.rounds_per_step])


def _shares(name: str, shares: Shares) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.sizes", torch.from_numpy(np.ascontiguousarray(shares.sizes))
    if isinstance(shares, Held):
        yield from _samples(name, Samples(shares.x, shares.y))
        yield from () if shares.order is None else [(f"{name}.order", shares.order)]
    else:
        slab = shares.fetch(np.zeros(1, dtype=np.int64))
        rows = positions(slab)
        yield from _samples(name, Samples(slab.x[rows], slab.y[rows]))


def _samples(name: str, samples: Samples) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.x", samples.x
    yield f"{name}.y", samples.y
