"""Digits: 1,797 handwritten digits of 8×8 pixels that come with scikit-learn; nothing to download.

Inputs are the 64 pixels as one row, in [0, 1]. A keyed fifth of the images is the global test set.

Reference: Alpaydin, Kaynak. Optical recognition of handwritten digits. UCI, 1998.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from turnout.data.federation import Federation, Samples
from turnout.data.once import once
from turnout.data.partition import Iid, Partition
from turnout.data.sources import ServerFrom, check_dealt, deal
from turnout.streams import Streams

TEST_SHARE = 0.2


@once
def all_digits() -> Samples:
    """Return every image and its label."""
    from sklearn.datasets import load_digits  # takes a second to import: only when asked for

    pixels, labels = load_digits(return_X_y=True)
    return Samples(torch.from_numpy((pixels / 16.0).astype(np.float32)), torch.from_numpy(labels.astype(np.int64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """scikit-learn's digits, dealt to clients."""

    clients: int = 100
    partition: Partition = field(default_factory=Iid)
    holdout: float = 0.0
    server_samples: int = 0
    server_from: ServerFrom = "clients"  # whom the server's samples come from; "test" makes them a public set
    samples: int | None = None  # of the training set; left out, all 1,438

    def __post_init__(self) -> None:
        check_dealt(self)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        everything = all_digits()
        order = streams.generator("test-split").permutation(len(everything))
        num_test = int(TEST_SHARE * len(order))
        test_rows, train_rows = np.sort(order[:num_test]), np.sort(order[num_test:])
        train, test = (Samples(everything.x[rows], everything.y[rows]) for rows in (train_rows, test_rows))
        return deal(self, "digits", train, test, 10, streams)
