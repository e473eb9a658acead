"""Mnist: 60,000 training and 10,000 test images of handwritten digits, 28×28 pixels in ten classes.

Inputs are float32 of shape (1, 28, 28), scaled to [0, 1] and standardised with the training set's mean and standard
deviation.

Reference: LeCun, Bottou, Bengio, Haffner. Gradient-based learning applied to document recognition. Proc. IEEE 1998.
"""

from typing import ClassVar

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import cache_last
from turnout.data.files import DataSet
from turnout.data.idx import four_files, read_images
from turnout.data.images import Images
from turnout.data.loading import PartitionedData, partition_data
from turnout.settings import rule
from turnout.streams import Streams
from turnout.traits import SampleForm

SET = DataSet(title="MNIST", folders=("mnist", "MNIST/raw"))
MEAN, STD = (0.1307,), (0.3081,)
FILES = four_files(
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def read_mnist(folder: str | None) -> tuple[Images, Images]:
    """Return the training and the test images."""
    return read_images(SET, FILES, folder)


@cache_last
def standard_mnist(folder: str | None) -> tuple[Samples, Samples]:
    """Return the training and the test set, standardised."""
    train, test = read_mnist(folder)
    return train.samples(MEAN, STD), test.samples(MEAN, STD)


@rule("data")
class Mnist(PartitionedData):
    """MNIST, partitioned across clients."""

    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads them
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(1, 28, 28), outputs=10)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        return partition_data(self, "mnist", *standard_mnist(self.folder), 10, streams)
