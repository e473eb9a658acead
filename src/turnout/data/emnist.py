"""Emnist: handwritten letters and digits of 28×28 pixels in 10 to 62 classes; five published splits.

Inputs are float32 of shape (1, 28, 28), upright (the files store each image transposed), scaled to [0, 1]
and standardised with the mean and standard deviation of the split's training set. Labels start at 0 in every split.

Reference: Cohen, Afshar, Tapson, van Schaik. EMNIST. 2017. arXiv:1702.05373.
"""

from typing import Literal, NamedTuple

import numpy as np

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import cache_last
from turnout.data.files import Archive, DataSet, File
from turnout.data.idx import image_file_bytes, label_file_bytes, read_images
from turnout.data.images import Images
from turnout.data.loading import PartitionedData, partition_data
from turnout.errors import DataError
from turnout.settings import rule
from turnout.streams import Streams
from turnout.traits import SampleForm


class Split(NamedTuple):
    """Sizes and labels of a published split."""

    train: int  # number of training images
    test: int  # number of test images
    classes: int  # number of classes C
    first_label: int = 0


SPLITS = {
    "balanced": Split(112_800, 18_800, 47),
    "byclass": Split(697_932, 116_323, 62),
    "bymerge": Split(697_932, 116_323, 47),
    "letters": Split(124_800, 20_800, 26, first_label=1),
    "digits": Split(240_000, 40_000, 10),
}
SET = DataSet(
    title="EMNIST",
    folders=("emnist", "emnist/gzip", "EMNIST/raw"),
    archive=Archive(
        url="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        inner="gzip",
        max_bytes=700_000_000,
        digest="md5:58c8d27c78d21e728a6bc7b3cc06412e",  # no digests of the files inside are published
    ),
)


def split_files(name: str) -> tuple[File, ...]:
    """Return the four files of a split."""
    split = SPLITS[name]
    sizes = (("train", split.train), ("test", split.test))
    return tuple(
        file
        for part, count in sizes
        for file in (
            File(name=f"emnist-{name}-{part}-images-idx3-ubyte", size=image_file_bytes(count)),
            File(name=f"emnist-{name}-{part}-labels-idx1-ubyte", size=label_file_bytes(count)),
        )
    )


def upright(images: Images, split: Split) -> Images:
    """Return the images transposed to upright, with labels from 0."""
    labels = images.labels - split.first_label
    if labels.min() < 0 or labels.max() >= split.classes:
        raise DataError(
            f"EMNIST labels must lie in {split.first_label}…{split.first_label + split.classes - 1} in this split; "
            f"got {images.labels.min()}…{images.labels.max()}. Replace the label files by the published ones."
        )
    return Images(np.ascontiguousarray(images.pixels.swapaxes(2, 3)), labels)


@cache_last
def standard_emnist(name: str, folder: str | None) -> tuple[Samples, Samples]:
    """Return the training and the test set of a split, upright and standardised."""
    train, test = (upright(part, SPLITS[name]) for part in read_images(SET, split_files(name), folder))
    mean, std = train.moments()
    return train.samples((mean,), (std,)), test.samples((mean,), (std,))


@rule("data")
class Emnist(PartitionedData):
    """EMNIST, partitioned across clients."""

    # published split: "balanced" 47 classes (usual), "byclass" 62, "bymerge" 47, "letters" 26, "digits" 10
    split: Literal["balanced", "byclass", "bymerge", "letters", "digits"] = "balanced"
    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads them
    folder: str | None = None

    @property
    def sample_form(self) -> SampleForm:
        """The form of a sample."""
        return SampleForm(shape=(1, 28, 28), outputs=SPLITS[self.split].classes)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        train, test = standard_emnist(self.split, self.folder)
        return partition_data(self, f"emnist-{self.split}", train, test, SPLITS[self.split].classes, streams)
