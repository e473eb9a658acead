"""Cifar10: 50,000 training and 10,000 test colour images of 32×32 pixels in ten classes.

Inputs are float32 of shape (3, 32, 32), scaled to [0, 1] and standardised per channel with the training set's means
and standard deviations. The loader reads the binary files `data_batch_1.bin` … `data_batch_5.bin` and
`test_batch.bin`, plain, as .gz or in the published archive. If a folder has only some of the training batches, the
loader uses those, and the federation's name says how many.

Reference: Krizhevsky. Learning multiple layers of features from tiny images. 2009.
"""

from typing import ClassVar

import numpy as np

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import cache_last
from turnout.data.files import Archive, DataSet, File, locate, places, read
from turnout.data.images import Images
from turnout.data.loading import PartitionedData, partition_data
from turnout.errors import DataError
from turnout.settings import rule
from turnout.streams import Streams
from turnout.traits import SampleForm

ROWS, PIXELS = 10_000, 3 * 32 * 32
SET = DataSet(
    title="CIFAR-10",
    folders=("cifar-10-batches-bin", "cifar-10", "cifar-10-subset"),
    archive=Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        inner="cifar-10-batches-bin",
        max_bytes=200_000_000,
    ),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def _batch(name: str, digest: str) -> File:
    return File(name=name, size=ROWS * (1 + PIXELS), digest=digest)


TRAIN = (
    _batch("data_batch_1.bin", "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    _batch("data_batch_2.bin", "md5:5ea93a67294ea407fff1d09f752e9692"),
    _batch("data_batch_3.bin", "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
    _batch("data_batch_4.bin", "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
    _batch("data_batch_5.bin", "md5:53f37980c15c3d472c316c40844f3f0d"),
)
TEST = _batch("test_batch.bin", "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b")


def parse_batch(data: bytes, name: str) -> Images:
    """Return the images of one batch: each record is a label and three colour planes."""
    if not data or len(data) % (1 + PIXELS):
        raise DataError(
            f"CIFAR-10 has {1 + PIXELS:,} bytes an image; {name} has {len(data):,}. Replace it by the published file."
        )
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, 1 + PIXELS)
    labels = rows[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise DataError(
            f"CIFAR-10 labels must lie in 0…9; {name} has {labels.max()}. Replace it by the published file."
        )
    return Images(rows[:, 1:].reshape(-1, 3, 32, 32), labels)


def read_cifar10(folder: str | None) -> tuple[Images, Images, int]:
    """Return the training images, the test images and the number of training batches found."""
    where = places(SET, folder)
    present = tuple(file for file in TRAIN if locate(file.name, where)) or TRAIN
    content = read(SET, (*present, TEST), folder)
    parts = [parse_batch(content.pop(file.name), file.name) for file in present]
    train = Images(np.concatenate([p.pixels for p in parts]), np.concatenate([p.labels for p in parts]))
    return train, parse_batch(content[TEST.name], TEST.name), len(present)


@cache_last
def standard_cifar10(folder: str | None) -> tuple[Samples, Samples, int]:
    """Return the training and the test set, standardised, and the number of training batches found."""
    train, test, batches = read_cifar10(folder)
    return train.samples(MEAN, STD), test.samples(MEAN, STD), batches


@rule("data")
class Cifar10(PartitionedData):
    """CIFAR-10, partitioned across clients."""

    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads them
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(3, 32, 32), outputs=10)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        train, test, batches = standard_cifar10(self.folder)
        name = "cifar-10" if batches == len(TRAIN) else f"cifar-10 ({batches} of {len(TRAIN)} training batches)"
        return partition_data(self, name, train, test, 10, streams)
