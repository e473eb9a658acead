"""Samples that lie on devices: a device's own, as an engine wants them, and what a server knows of all of them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.data.federation import Federation, Samples, Slab
from turnout.errors import DataError
from turnout.settings import rule
from turnout.streams import Streams


@dataclass(frozen=True, slots=True)
class OwnSamples:
    """The training samples of one device. Whichever client's are asked for, these are the ones."""

    samples: Samples

    @property
    def sizes(self) -> Ids:
        """The number of samples."""
        return np.array([len(self.samples)])

    def fetch(self, clients: Ids) -> Slab:
        """Return the device's samples, once per client named."""
        count = len(clients)
        starts, sizes = np.zeros(count, dtype=np.int64), np.full(count, len(self.samples), dtype=np.int64)
        return Slab(self.samples.x, self.samples.y, starts, sizes, None)


@dataclass(frozen=True, slots=True)
class SamplesOnDevices:
    """What the server knows of the devices' samples: how many, and what one looks like.

    `sizes` is filled in place when a device that joins late says how many it has; until then it counts as one.
    """

    sizes: Ids
    example: Samples  # one sample of zeros, to try a model on
    label_counts: Ids | None = None  # (clients, classes), where all devices allow it

    def fetch(self, clients: Ids) -> Slab:
        """Return the one made-up sample; anything else lies on the devices."""
        if not np.array_equal(clients, [0]):
            raise DataError(f"The samples of clients {clients.tolist()} lie on their devices, not on the server.")
        one = np.ones(1, dtype=np.int64)
        return Slab(self.example.x, self.example.y, np.zeros(1, dtype=np.int64), one, None)


@rule("data")
class OnDevices:
    """Stands for data in a study that is deployed, until devices have said what they have."""

    def build(self, streams: Streams) -> Federation:
        """Raise: there is nothing to build."""
        raise DataError("This study's samples lie on devices. Run it with: turnout deploy run")


def own_federation(samples: Samples, holdout: Samples | None, num_classes: int | None) -> Federation:
    """Return one device's samples as a federation of one, with its hold-out for measuring."""
    return Federation(
        train=OwnSamples(samples),
        test=holdout,
        server=holdout,
        name="this device",
        num_classes=num_classes,
        example_shape=tuple(samples.x.shape[1:]),
        example=samples.x[:1].clone(),
    )


def example_of(shape: tuple[int, ...], kind: str, target_shape: tuple[int, ...], is_class: bool) -> Samples:
    """Return one sample of zeros of this shape and type."""
    x: Tensor = torch.zeros((1, *shape), dtype=getattr(torch, kind))
    return Samples(x, torch.zeros((1, *target_shape), dtype=torch.int64 if is_class else torch.float32))
