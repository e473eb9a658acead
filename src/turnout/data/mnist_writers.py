"""MnistWriters: MNIST partitioned by writer; each of the 539 writers of the training set is a client.

QMNIST has the writer of every MNIST digit. The test set is MNIST's, written by 297
other people. Inputs are as in `Mnist`.

Reference: Yadav, Bottou. Cold case: the lost MNIST digits. NeurIPS 2019. arXiv:1905.10498.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.data.assemble import assemble
from turnout.data.federation import Federation
from turnout.data.files import DataSet, File, read
from turnout.data.idx import parse_idx
from turnout.data.loading import random_subset
from turnout.data.mnist import standard_mnist
from turnout.data.partition.natural import by_id, id_names
from turnout.errors import DataError
from turnout.settings import Clients, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

ADDRESS = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
SET = DataSet(title="QMNIST", folders=("mnist-writers", "qmnist", "QMNIST/raw"))
COLUMNS, CLASS, WRITER = 8, 0, 2
LABEL_BYTES = 12 + 60_000 * COLUMNS * 4
TRAIN = File(
    name="qmnist-train-labels-idx2-int",
    size=LABEL_BYTES,
    digest="sha256:bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
    url=ADDRESS + "qmnist-train-labels-idx2-int.gz",
)
TEST = File(  # its first 10,000 rows are MNIST's test images
    name="qmnist-test-labels-idx2-int",
    size=LABEL_BYTES,
    digest="sha256:92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd",
    url=ADDRESS + "qmnist-test-labels-idx2-int.gz",
)


def read_rows(file: File, folder: str | None) -> NDArray[np.int64]:
    """Return QMNIST's extended labels: column 0 is the class, column 2 the writer."""
    return parse_idx(read(SET, (file,), folder)[file.name], f"QMNIST: {file.name}").astype(np.int64)


@rule("data")
class MnistWriters:
    """MNIST; each writer is a client."""

    clients: Clients | None = None  # number of clients N, a random subset of the writers, 1 to 539; none is all 539
    holdout: ShareBelowOne = 0.0  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    server_samples: CountOrZero = 0  # number of samples moved from the clients to the server, 0 or more; 100 is usual
    # number of inputs, without labels, moved from the clients to the public set, 0 or more; 100 to 5000 is usual
    public_samples: CountOrZero = 0
    # folder that holds the folders `mnist` and `mnist-writers`, or the files of both; none looks in TURNOUT_DATA, then
    # in the cache, and then downloads them
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(1, 28, 28), outputs=10)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        train, test = standard_mnist(self.folder)
        rows = read_rows(TRAIN, self.folder)
        if not np.array_equal(rows[:, CLASS], train.y.numpy()):
            raise DataError(
                "QMNIST's classes must equal MNIST's labels, image by image; they differ. Replace both sets."
            )
        writers = np.unique(rows[:, WRITER])
        chosen = writers[random_subset(len(writers), self.clients, streams, purpose="clients", what="writers")]
        mine = np.flatnonzero(np.isin(rows[:, WRITER], chosen))
        ids = rows[mine, WRITER]
        return assemble(
            name="mnist-writers",
            store=train,
            parts=[mine[part] for part in by_id(ids)],
            streams=streams,
            test=test,
            holdout=self.holdout,
            server_samples=self.server_samples,
            public_samples=self.public_samples,
            num_classes=10,
            client_names=id_names(ids),
        )
