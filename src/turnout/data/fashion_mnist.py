"""FashionMnist: 60,000 training and 10,000 test images of clothes, 28×28 pixels in ten classes.

Inputs are float32 of shape (1, 28, 28), scaled to [0, 1] and standardised with the training set's mean and standard
deviation.

Reference: Xiao, Rasul, Vollgraf. Fashion-MNIST. 2017. arXiv:1708.07747.
"""

from typing import ClassVar

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import cache_last
from turnout.data.files import DataSet
from turnout.data.idx import four_files, read_images
from turnout.data.loading import PartitionedData, partition_data
from turnout.settings import rule
from turnout.streams import Streams
from turnout.traits import SampleForm

SET = DataSet(title="Fashion-MNIST", folders=("fashion-mnist", "FashionMNIST/raw"))
MEAN, STD = (0.2860,), (0.3530,)
FILES = four_files(
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)


@cache_last
def standard_fashion_mnist(folder: str | None) -> tuple[Samples, Samples]:
    """Return the training and the test set, standardised."""
    train, test = read_images(SET, FILES, folder)
    return train.samples(MEAN, STD), test.samples(MEAN, STD)


@rule("data")
class FashionMnist(PartitionedData):
    """Fashion-MNIST, partitioned across clients."""

    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads them
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(1, 28, 28), outputs=10)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        return partition_data(self, "fashion-mnist", *standard_fashion_mnist(self.folder), 10, streams)
