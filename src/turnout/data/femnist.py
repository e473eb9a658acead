"""Femnist: handwritten letters and digits of 28×28 pixels in 62 classes; each writer is a client.

Inputs are float32 of shape (1, 28, 28) with the values of LEAF's files, in [0, 1]. The loader reads
LEAF's JSON layout: a folder `train` and a folder `test` (or `data/train`, `data/test`) of .json files, each with the
keys users, num_samples and user_data. All samples in `test` are the global test set.

Reference: Caldas et al. LEAF. 2018. arXiv:1812.01097.
"""

import json
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.assemble import assemble
from turnout.data.federation import Federation, Samples
from turnout.data.files import DataSet, find_folder
from turnout.data.loading import random_subset
from turnout.errors import DataError
from turnout.limits import read_bounded
from turnout.settings import Clients, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

SIDE, CLASSES = 28, 62
MAX_BYTES = 2_000_000_000  # largest size of one file; a file of LEAF holds a hundred writers
SET = DataSet(
    title="FEMNIST",
    folders=("femnist",),
    advice="It is not downloaded: make it with LEAF's data/femnist/preprocess.sh -s niid --sf 1.0 -k 0 -t sample.",
)


class Writer(NamedTuple):
    """One writer's samples."""

    name: str
    x: NDArray[np.float32]
    y: Ids


def read_writers(folder: Path) -> list[Writer]:
    """Return every writer of a folder of LEAF's .json files, sorted by name."""
    writers: dict[str, Writer] = {}
    for path in sorted(folder.glob("*.json")):
        for writer in parse_leaf(read_bounded(path, MAX_BYTES), str(path)):
            if writer.name in writers:
                raise DataError(f"{path} holds writer {writer.name} again. Remove the file that came from another run.")
            writers[writer.name] = writer
    return [writers[name] for name in sorted(writers)]


def parse_leaf(data: bytes, where: str) -> list[Writer]:
    """Return the writers of one LEAF file."""
    try:
        content = json.loads(data)
        users, counts, samples = content["users"], content["num_samples"], content["user_data"]
        pairs = list(zip(users, counts, strict=True))
        return [_writer(str(user), int(count), samples[user], where) for user, count in pairs]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise DataError(
            f"{where} must be LEAF's JSON with users, num_samples and user_data: {type(error).__name__} {error}. "
            "Make it again."
        ) from error


def _writer(name: str, count: int, samples: dict[str, Any], where: str) -> Writer:
    x, y = np.asarray(samples["x"], dtype=np.float32), np.asarray(samples["y"], dtype=np.int64)
    if x.shape != (count, SIDE * SIDE) or y.shape != (count,):
        raise DataError(
            f"{where} must hold {count} images of {SIDE * SIDE} values for writer {name}; got {x.shape} and {y.shape} "
            "labels. Make it again."
        )
    if count and not (x.min() >= 0.0 and x.max() <= 1.0 and y.min() >= 0 and y.max() < CLASSES):
        raise DataError(
            f"{where} must hold values in [0, 1] and labels in 0…{CLASSES - 1}; writer {name} has values "
            f"{x.min()}…{x.max()} and labels {y.min()}…{y.max()}. Make it again."
        )
    return Writer(name, x, y)


def _data(place: Path) -> Path | None:
    """Return the folder with train/*.json and test/*.json: this one or its subfolder `data`; None if neither has."""
    both = (place / "data", place)
    return next((p for p in both if any(p.glob("train/*.json")) and any(p.glob("test/*.json"))), None)


def pooled(writers: list[Writer]) -> Samples:
    """Return the samples of all writers, one after another."""
    if not writers:
        raise DataError("FEMNIST must have writers with samples in train and in test; there are none. Make it again.")
    x = np.concatenate([writer.x for writer in writers]).reshape(-1, 1, SIDE, SIDE)
    return Samples(torch.from_numpy(x), torch.from_numpy(np.concatenate([writer.y for writer in writers])))


@rule("data")
class Femnist:
    """FEMNIST; each writer is a client."""

    # number of clients N, a random subset of the writers, 1 or more; none is all writers
    clients: Clients | None = None
    holdout: ShareBelowOne = 0.0  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    server_samples: CountOrZero = 0  # number of samples moved from the clients to the server, 0 or more; 100 is usual
    # number of inputs, without labels, moved from the clients to the public set, 0 or more; 100 to 5000 is usual
    public_samples: CountOrZero = 0
    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache; they are not downloaded
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(1, SIDE, SIDE), outputs=CLASSES)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        needs = "data/train/*.json and data/test/*.json"
        place = find_folder(SET, self.folder, needs=needs, holds=lambda place: _data(place) is not None)
        data = _data(place) or place
        writers = [writer for writer in read_writers(data / "train") if len(writer.y)]
        rows = random_subset(
            len(writers), self.clients, streams, purpose="clients", what="writers with training samples"
        )
        chosen = [writers[row] for row in rows]
        ends = np.cumsum([len(writer.y) for writer in chosen])
        return assemble(
            name="femnist",
            store=pooled(chosen),
            parts=[np.arange(end - len(writer.y), end) for end, writer in zip(ends, chosen, strict=True)],
            streams=streams,
            test=pooled(read_writers(data / "test")),
            holdout=self.holdout,
            server_samples=self.server_samples,
            public_samples=self.public_samples,
            num_classes=CLASSES,
            client_names=tuple(writer.name for writer in chosen),
        )
