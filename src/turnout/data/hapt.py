"""Hapt: activity recognition from a phone worn at the waist by 30 people; each person is a client.

Inputs are float32 of shape (6, 128): three axes of acceleration and three of angular velocity over 2.56 s at 50 Hz.
A window lies within one labelled recording, and by default overlaps the next by half. Each channel is standardised with
the mean and standard deviation of the training people. Labels 0…5: walking, upstairs, downstairs, sitting, standing,
lying. The windows of some random people are the global test set, as in the published split (9 of 30). Windows of a
hold-out overlap training windows unless `hop` is 128 or more.

The loader reads `hapt_raw.npz` (arrays signal, scale, label, user, experiment; no pickles), or the folder `RawData` as
published (acc_expXX_userYY.txt, gyro_expXX_userYY.txt, labels.txt).

Reference: Reyes-Ortiz, Oneto, Samà, Parra, Anguita. Transition-aware human activity recognition using smartphones.
Neurocomputing 2016. UCI data set 341.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.assemble import assemble
from turnout.data.federation import Federation, Samples
from turnout.data.files import DataSet, find_folder
from turnout.data.loading import random_subset
from turnout.data.partition.natural import by_id, id_names
from turnout.errors import DataError
from turnout.limits import read_bounded
from turnout.settings import Clients, Count, CountOrZero, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

WINDOW = 128  # length of a window in measurements
CHANNELS = 6
ACTIVITIES = 6  # labels 1…6 of the files; higher labels are posture transitions
NAME = "hapt_raw.npz"
MAX_BYTES = 100_000_000  # largest unpacked size of a file
MAX_NUMBER = 10_000_000  # largest absolute value in a text file; true values are far below it
SET = DataSet(
    title="HAPT",
    folders=("hapt", "HAPT Data Set"),
    advice="It is not downloaded: unpack UCI's data set 341 (archive.ics.uci.edu) there, so that RawData lies in it.",
)


@dataclass(frozen=True, slots=True)
class Recording:
    """All measurements, one after another."""

    signal: NDArray[np.float32]  # (measurements, channels)
    label: Ids  # activity of each measurement; −1 or 0 if it has no label
    user: Ids  # person of each measurement
    experiment: Ids  # experiment of each measurement


def read_recording(folder: str | None) -> Recording:
    """Return the recording from whichever of the two layouts the folder has."""
    needs = f"{NAME} or the folder RawData with labels.txt"
    place = find_folder(SET, folder, needs=needs, holds=lambda p: (p / NAME).is_file() or _raw(p).is_file())
    return read_npz(place / NAME) if (place / NAME).is_file() else read_raw(_raw(place).parent)


def _raw(place: Path) -> Path:
    return place / "RawData" / "labels.txt"


def read_npz(path: Path) -> Recording:
    """Return the recording in hapt_raw.npz."""
    try:
        with zipfile.ZipFile(path) as bundle:
            size = sum(member.file_size for member in bundle.infolist())
        if size > MAX_BYTES:
            raise DataError(f"{path} must unpack to at most {MAX_BYTES:,} bytes; it unpacks to {size:,}. Replace it.")
        with np.load(path, allow_pickle=False) as arrays:
            values = [arrays[name] for name in ("signal", "scale", "label", "user", "experiment")]
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and numpy each raise their own errors
        raise DataError(f"{path} is damaged or is another file: {error}. Replace it.") from error
    if not all(isinstance(array, np.ndarray) for array in values):  # numpy returns members that are not arrays as bytes
        raise DataError(f"{path} must hold arrays; it holds other files. Replace it.")
    signal, scale, label, user, experiment = values
    wrong = [array.dtype for array in (signal, scale) if array.dtype.kind not in "iuf"]
    wrong += [array.dtype for array in (label, user, experiment) if array.dtype.kind not in "iu"]
    if wrong or label.ndim != 1:
        raise DataError(
            f"{path} must hold rows of numbers; got {wrong or f'labels of shape {label.shape}'}. Replace it."
        )
    count = label.size
    if signal.shape != (count, CHANNELS) or scale.shape != (CHANNELS,) or {user.shape, experiment.shape} != {(count,)}:
        raise DataError(
            f"{path} must hold {CHANNELS} channels and one label, user and experiment per sample; got signal "
            f"{signal.shape}, scale {scale.shape}, {count} labels, {user.size} users. Replace it."
        )
    scaled = (signal * scale).astype(np.float32)
    return Recording(scaled, label.astype(np.int64), user.astype(np.int64), experiment.astype(np.int64))


def read_raw(folder: Path) -> Recording:
    """Return the recording of the published layout: two text files per experiment and one file of labels."""
    runs = _numbers(folder / "labels.txt", 5).astype(np.int64)  # experiment, user, label, first, last (from 1)
    parts: list[Recording] = []
    for experiment, user in np.unique(runs[:, :2], axis=0):
        ending = f"exp{experiment:02d}_user{user:02d}.txt"
        both = [_numbers(folder / f"{sensor}_{ending}", 3) for sensor in ("acc", "gyro")]
        if len(both[0]) != len(both[1]):
            raise DataError(
                f"acc_{ending} and gyro_{ending} in {folder} must have equally many lines; got {len(both[0])} and "
                f"{len(both[1])}. Unpack them again."
            )
        label = np.full(len(both[0]), -1, dtype=np.int64)
        for _, _, activity, first, last in runs[(runs[:, 0] == experiment) & (runs[:, 1] == user)]:
            if not 1 <= first <= last <= len(label):
                raise DataError(
                    f"labels.txt in {folder} must name samples 1…{len(label)} of acc_{ending}; got {first}…{last}. "
                    "Unpack the files again."
                )
            label[first - 1 : last] = activity
        owner = (np.full(len(label), user), np.full(len(label), experiment))
        parts.append(Recording(np.concatenate(both, axis=1).astype(np.float32), label, *owner))
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in Recording.__slots__)
    return Recording(*joined)


def _numbers(path: Path, columns: int) -> NDArray[np.float64]:
    lines = read_bounded(path, MAX_BYTES).decode("utf-8", "replace").splitlines()
    try:
        numbers = (
            np.loadtxt(lines, dtype=np.float64, ndmin=2, usecols=range(columns)) if lines else np.zeros((0, columns))
        )
    except ValueError as error:
        raise DataError(f"{path} must hold {columns} numbers a line: {error}. Unpack it again.") from error
    if not len(numbers) or not (np.abs(numbers) < MAX_NUMBER).all():
        raise DataError(f"{path} must hold {columns} numbers a line, none beyond ±{MAX_NUMBER:,}. Unpack it again.")
    return numbers


def windows(recording: Recording, hop: int) -> tuple[NDArray[np.float32], Ids, Ids]:
    """Return windows (count, channels, samples), labels from 0 and users; each window lies inside one labelled run."""
    key = np.stack([recording.label, recording.user, recording.experiment])
    starts = np.concatenate([[0], np.flatnonzero((np.diff(key) != 0).any(axis=0)) + 1])
    ends = np.append(starts[1:], len(recording.label))
    used = (recording.label[starts] >= 1) & (recording.label[starts] <= ACTIVITIES) & (ends - starts >= WINDOW)
    runs = zip(starts[used], ends[used], strict=True)
    first = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(s, e - WINDOW + 1, hop) for s, e in runs)])
    x = recording.signal[first[:, None] + np.arange(WINDOW)].transpose(0, 2, 1)
    return np.ascontiguousarray(x), recording.label[first] - 1, recording.user[first]


@rule("data")
class Hapt:
    """Activity recognition; each person is a client."""

    # number of clients N, a random subset of the people outside the test set, 1 or more; none is all of them
    clients: Clients | None = None
    test_people: CountOrZero = 9  # number of people whose windows are the global test set, 0 or more; 9 is usual
    hop: Count = 64  # measurements between the starts of two windows, 1 or more; 64 is usual, 128 avoids overlap
    holdout: ShareBelowOne = 0.0  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    server_samples: CountOrZero = 0  # number of samples moved from the clients to the server, 0 or more; 100 is usual
    # number of inputs, without labels, moved from the clients to the public set, 0 or more; 100 to 5000 is usual
    public_samples: CountOrZero = 0
    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache; they are not downloaded
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(CHANNELS, WINDOW), outputs=ACTIVITIES)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        x, y, users = windows(read_recording(self.folder), self.hop)
        people = np.unique(users)
        if self.test_people >= len(people):
            raise DataError(
                f"Hapt needs someone to train: there are {len(people)} people and test_people is {self.test_people}. "
                f"Set data.test_people to {max(len(people) - 1, 0)} or less."
            )
        tested = people[random_subset(len(people), self.test_people, streams, purpose="test_people", what="people")]
        others = np.setdiff1d(people, tested)
        chosen = others[
            random_subset(len(others), self.clients, streams, purpose="clients", what="people outside the test set")
        ]
        train, test = np.isin(users, chosen), np.isin(users, tested)
        mean, std = x[train].mean((0, 2), dtype=np.float64), x[train].std((0, 2), dtype=np.float64)
        scaled = ((x - mean[:, None]) / std[:, None]).astype(np.float32)
        sets = [Samples(torch.from_numpy(scaled[rows]), torch.from_numpy(y[rows])) for rows in (train, test)]
        return assemble(
            name="hapt",
            store=sets[0],
            parts=by_id(users[train]),
            streams=streams,
            test=sets[1] if self.test_people else None,
            holdout=self.holdout,
            server_samples=self.server_samples,
            public_samples=self.public_samples,
            num_classes=ACTIVITIES,
            client_names=id_names(users[train]),
        )
