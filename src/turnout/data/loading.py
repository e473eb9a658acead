"""Shared parts of the loaders: common settings, random subsets and partitioning across clients."""

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
class PartitionedData:
    """The settings of a data set that a partition rule splits across clients."""

    clients: Clients = 100  # number of clients N, 1 or more; 10 to 1000 is usual
    partition: Partition = field(default_factory=Iid)  # rule that splits the training samples across clients
    holdout: ShareBelowOne = 0.0  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    server_samples: CountOrZero = 0  # number of samples of the server, 0 or more; 100 is usual where a rule needs them
    # origin of the server's samples: "clients" takes them from the clients (usual), "test" from the test set
    server_from: ServerFrom = "clients"
    # number of inputs, without labels, in the public set that the server and all clients have, 0 or more; 100 to 5000
    # is usual where a rule needs them
    public_samples: CountOrZero = 0
    public_from: ServerFrom = "clients"  # origin of the public set: "clients" (usual) or "test", as of server_from
    samples: Count | None = None  # number of training samples to use, at least one per client; none is all

    def __post_init__(self) -> None:
        title = type(self).__name__
        if self.samples is not None and self.samples < self.clients:
            raise ConfigError(
                f"{title} needs samples >= clients; got {self.samples} < {self.clients}. "
                f"Set data.samples to {self.clients} or more, or leave it out to use all.",
                setting="data.samples",
            )
        if self.server_from == "test" and self.server_samples == 0:
            raise ConfigError(
                f'{title} with server_from = "test" needs server_samples >= 1; got 0. Set data.server_samples to 100, '
                "for example, or leave data.server_from out.",
                setting="data.server_samples",
            )
        if self.public_from == "test" and self.public_samples == 0:
            raise ConfigError(
                f'{title} with public_from = "test" needs public_samples >= 1; got 0. Set data.public_samples to 100, '
                "for example, or leave data.public_from out.",
                setting="data.public_samples",
            )


def random_subset(count: int, wanted: int | None, streams: Streams, *, purpose: str, what: str) -> Ids:
    """Return the sorted positions of a random subset; all positions if `wanted` is None."""
    if wanted is None:
        return np.arange(count)
    if wanted > count:
        raise DataError(f"There are {count} {what}; got {purpose} = {wanted}. Set data.{purpose} to {count} or less.")
    return np.sort(streams.generator(purpose).choice(count, wanted, replace=False))


def partition_data(
    source: PartitionedData, name: str, train: Samples, test: Samples, num_classes: int, streams: Streams
) -> Federation:
    """Return a federation whose clients are parts of the training samples; the samples are shared, not copied."""
    used = training_rows(source, len(train), streams)
    parts = source.partition.split(train.y.numpy()[used], source.clients, streams.generator("partition"))
    server_from_test, public_from_test = source.server_from == "test", source.public_from == "test"
    federation = assemble(
        name=name,
        store=train,
        parts=[used[part] for part in parts],
        streams=streams,
        test=test,
        holdout=source.holdout,
        server_samples=0 if server_from_test else source.server_samples,
        public_samples=0 if public_from_test else source.public_samples,
        num_classes=num_classes,
    )
    if server_from_test:
        federation = with_public_set(federation, source.server_samples, streams)
    if not public_from_test:
        return federation
    moved, test = _moved(federation, ("public_samples", source.public_samples), streams, purpose="public-inputs")
    return replace(federation, public=moved.x, test=test)


def with_public_set(federation: Federation, count: int, streams: Streams) -> Federation:
    """Return the federation with random samples of the test set moved to the server, a public set."""
    server, test = _moved(federation, ("server_samples", count), streams, purpose="public-samples")
    return replace(federation, server=server, test=test)


def _moved(
    federation: Federation, given: tuple[str, int], streams: Streams, *, purpose: str
) -> tuple[Samples, Samples]:
    """Return random samples of the test set, by the setting that says how many, and those that are left."""
    test, (setting, count) = federation.test, given
    if test is None or count >= len(test):
        raise DataError(
            f"A public set must leave the test set one sample; got {count} of {0 if test is None else len(test)}. "
            f'Change data.{setting}, or set data.{setting.removesuffix("samples")}from to "clients".'
        )
    order = streams.generator(purpose).permutation(len(test))
    taken, left = (torch.from_numpy(np.sort(rows)) for rows in (order[:count], order[count:]))
    return Samples(test.x[taken], test.y[taken]), Samples(test.x[left], test.y[left])


def training_rows(source: PartitionedData, count: int, streams: Streams) -> Ids:
    """Return the positions of the training samples that the data set uses."""
    return random_subset(count, source.samples, streams, purpose="samples", what="training samples")
