"""What loaders share: checks of their settings, keyed subsets, and dealing by a partition rule."""

from dataclasses import field, replace
from typing import Literal

import numpy as np
import torch

from turnout.array_types import Ids
from turnout.data.assemble import assemble
from turnout.data.federation import Federation, Samples
from turnout.data.partition import Iid, Partition
from turnout.errors import ConfigError, DataError
from turnout.settings import Clients, Count, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams

ServerFrom = Literal["clients", "test"]


@rule("data")
class Dealt:
    """The settings of a data set that is dealt to clients by a partition rule."""

    clients: Clients = 100  # N
    partition: Partition = field(default_factory=Iid)  # who holds what
    holdout: ShareBelowOne = 0.0  # the share of each client's samples kept for its own test
    server_samples: CountOrZero = 0  # how many the server holds
    server_from: ServerFrom = "clients"  # whom the server's samples come from; "test" makes them a public set
    samples: Count | None = None  # of the training set; left out, all

    def __post_init__(self) -> None:
        title = type(self).__name__
        if self.samples is not None and self.samples < self.clients:
            raise ConfigError(
                f"{title} needs samples >= clients; got {self.samples} < {self.clients}. "
                f"Set data.samples to {self.clients} or more, or leave it out to use all."
            )
        if self.server_from == "test" and self.server_samples == 0:
            raise ConfigError(
                f'{title} with server_from = "test" needs server_samples >= 1; got 0. Set data.server_samples to 100, '
                "for example, or leave data.server_from out."
            )


def kept(count: int, wanted: int | None, streams: Streams, *, purpose: str, what: str) -> Ids:
    """Return the positions of a keyed subset in rising order; all of them if None is wanted."""
    if wanted is None:
        return np.arange(count)
    if wanted > count:
        raise DataError(f"There are {count} {what}; got a wish for {wanted}. Set data.{purpose} to {count} or less.")
    return np.sort(streams.generator(purpose).choice(count, wanted, replace=False))


def deal(source: Dealt, name: str, train: Samples, test: Samples, num_classes: int, streams: Streams) -> Federation:
    """Deal training samples to clients by the source's partition rule; the store itself is shared, not copied."""
    used = training_rows(source, len(train), streams)
    parts = source.partition.split(train.y.numpy()[used], source.clients, streams.generator("partition"))
    is_public = source.server_from == "test"
    federation = assemble(
        name=name,
        store=train,
        parts=[used[part] for part in parts],
        streams=streams,
        test=test,
        holdout=source.holdout,
        server_samples=0 if is_public else source.server_samples,
        num_classes=num_classes,
    )
    return with_public_set(federation, source.server_samples, streams) if is_public else federation


def with_public_set(federation: Federation, count: int, streams: Streams) -> Federation:
    """Return the federation with a keyed part of its test set moved to the server: samples that no client holds."""
    test = federation.test
    if test is None or count >= len(test):
        raise DataError(
            f"A public set must leave the test set one sample; got {count} of {0 if test is None else len(test)}. "
            'Change data.server_samples, or set data.server_from to "clients".'
        )
    order = streams.generator("public-samples").permutation(len(test))
    taken, left = (torch.from_numpy(np.sort(rows)) for rows in (order[:count], order[count:]))
    return replace(federation, server=Samples(test.x[taken], test.y[taken]), test=Samples(test.x[left], test.y[left]))


def training_rows(source: Dealt, count: int, streams: Streams) -> Ids:
    """Return which training samples the source uses."""
    return kept(count, source.samples, streams, purpose="samples", what="training samples")
