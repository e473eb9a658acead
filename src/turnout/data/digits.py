"""Digits: 1,797 handwritten digits of 8×8 pixels that come with scikit-learn; no download.

Inputs are vectors of 64 pixels in [0, 1]. A random fifth of the images, drawn by the seed, is the global test set.

Reference: Alpaydin, Kaynak. Optical recognition of handwritten digits. UCI, 1998.
"""

from typing import ClassVar

import numpy as np
import torch

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import cache_last
from turnout.data.loading import PartitionedData, partition_data
from turnout.settings import rule
from turnout.streams import Streams
from turnout.traits import SampleForm

TEST_SHARE = 0.2


@cache_last
def all_digits() -> Samples:
    """Return every image and its label."""
    from sklearn.datasets import load_digits  # lazy: the import takes a second

    pixels, labels = load_digits(return_X_y=True)
    return Samples(torch.from_numpy((pixels / 16.0).astype(np.float32)), torch.from_numpy(labels.astype(np.int64)))


@rule("data")
class Digits(PartitionedData):
    """scikit-learn's digits, partitioned across clients."""

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(64,), outputs=10)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        images = all_digits()
        order = streams.generator("test-split").permutation(len(images))
        num_test = int(TEST_SHARE * len(order))
        test_rows, train_rows = np.sort(order[:num_test]), np.sort(order[num_test:])
        train, test = (Samples(images.x[rows], images.y[rows]) for rows in (train_rows, test_rows))
        return partition_data(self, "digits", train, test, 10, streams)
