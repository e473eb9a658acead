"""Digits: 1,797 handwritten digits of 8×8 pixels that come with scikit-learn; nothing to download.

Inputs are the 64 pixels as one row, in [0, 1]. A keyed fifth of the images is the global test set.

Reference: Alpaydin, Kaynak. Optical recognition of handwritten digits. UCI, 1998.
"""

import numpy as np
import torch

from turnout.data.federation import Federation, Samples
from turnout.data.file_cache import once
from turnout.data.loading import Dealt, deal
from turnout.settings import rule
from turnout.streams import Streams

TEST_SHARE = 0.2


@once
def all_digits() -> Samples:
    """Return every image and its label."""
    from sklearn.datasets import load_digits  # takes a second to import: only when asked for

    pixels, labels = load_digits(return_X_y=True)
    return Samples(torch.from_numpy((pixels / 16.0).astype(np.float32)), torch.from_numpy(labels.astype(np.int64)))


@rule("data")
class Digits(Dealt):
    """scikit-learn's digits, dealt to clients."""

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        everything = all_digits()
        order = streams.generator("test-split").permutation(len(everything))
        num_test = int(TEST_SHARE * len(order))
        test_rows, train_rows = np.sort(order[:num_test]), np.sort(order[num_test:])
        train, test = (Samples(everything.x[rows], everything.y[rows]) for rows in (train_rows, test_rows))
        return deal(self, "digits", train, test, 10, streams)
