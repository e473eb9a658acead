"""Loaders of images: counts and moments of the real files, layouts worked by hand, messages."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from tests.support.optional import present
from tests.support.tasks import held_out_test_set, holdout_of, server_of, train_of
from turnout.data.cifar10 import Cifar10, parse_batch, read_cifar10
from turnout.data.digits import Digits
from turnout.data.emnist import SPLITS, Emnist, Split, split_files, upright
from turnout.data.fashion_mnist import FashionMnist
from turnout.data.femnist import Femnist
from turnout.data.hapt import Hapt
from turnout.data.images import Images
from turnout.data.loading import random_subset
from turnout.data.mnist import Mnist, read_mnist
from turnout.data.mnist_writers import CLASS, TEST, TRAIN, WRITER, MnistWriters, read_rows
from turnout.data.partition import KLabels
from turnout.data.shakespeare import Shakespeare
from turnout.errors import ConfigError, DataError
from turnout.streams import Streams

Real = Callable[..., str]
STREAMS = Streams(seed=7)
pytestmark = pytest.mark.usefixtures("nothing_is_downloaded")
MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


# ------------------------------------------------------------------------------------------------ digits


def test_contract_digits_need_no_files_and_are_dealt_without_loss(nowhere: None) -> None:
    federation = Digits(clients=10).build(STREAMS)
    assert (federation.num_clients, int(federation.sizes.sum()), len(held_out_test_set(federation))) == (10, 1438, 359)
    assert federation.example_shape == (64,)
    assert federation.num_classes == 10
    inputs = train_of(federation).x
    assert inputs.dtype == torch.float32
    assert (float(inputs.min()), float(inputs.max())) == (0.0, 1.0)


def test_property_the_test_split_of_digits_is_keyed_by_the_seed_alone() -> None:
    first, again = Digits(clients=10).build(STREAMS), Digits(clients=25, holdout=0.2).build(STREAMS)
    other = Digits(clients=10).build(Streams(seed=8))
    assert torch.equal(held_out_test_set(first).x, held_out_test_set(again).x)
    assert not torch.equal(held_out_test_set(first).x, held_out_test_set(other).x)


def test_contract_samples_takes_a_keyed_subset_of_the_training_set_only() -> None:
    small, whole = Digits(clients=5, samples=100).build(STREAMS), Digits(clients=5).build(STREAMS)
    assert int(small.sizes.sum()) == 100
    assert torch.equal(held_out_test_set(small).x, held_out_test_set(whole).x)
    assert torch.equal(train_of(small).x, train_of(Digits(clients=5, samples=100).build(STREAMS)).x)
    rows = {tuple(row) for row in train_of(whole).x.tolist()}
    assert all(tuple(row) in rows for row in train_of(small).x.tolist())


def test_property_train_and_test_of_digits_are_all_of_it_and_share_nothing() -> None:
    federation = Digits(clients=10).build(STREAMS)
    both = torch.cat([train_of(federation).x, held_out_test_set(federation).x])
    ours, theirs = (np.sort(np.ascontiguousarray(rows), axis=0) for rows in (both.numpy(), load_digits().data / 16))
    assert np.array_equal(np.unique(both, axis=0), np.unique(load_digits().data / 16, axis=0))
    assert np.array_equal(ours, theirs)


def test_property_the_subset_of_samples_changes_with_the_seed() -> None:
    rows = [random_subset(1000, 100, Streams(seed), purpose="samples", what="samples") for seed in (1, 1, 2)]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    assert len(np.unique(rows[0])) == 100
    assert (np.diff(rows[0]) > 0).all()


def test_contract_holdout_and_server_samples_reach_the_federation() -> None:
    federation = Digits(clients=10, holdout=0.25, server_samples=38).build(STREAMS)
    assert len(server_of(federation)) == 38
    assert int(federation.sizes.sum() + holdout_of(federation).sizes.sum()) == 1400


# ------------------------------------------------------------------------------------------------ MNIST and relatives


@pytest.mark.data
def test_golden_mnist_has_its_published_counts_and_moments(real: Real) -> None:
    train, test = read_mnist(real("mnist"))
    assert np.bincount(train.labels).tolist() == MNIST_COUNTS
    assert train.pixels.shape == (60_000, 1, 28, 28)
    assert test.pixels.shape == (10_000, 1, 28, 28)
    assert train.moments() == pytest.approx((0.1307, 0.3081), abs=5e-5)


@pytest.mark.data
def test_golden_mnist_is_standardised_and_dealt_by_its_partition(real: Real) -> None:
    source = Mnist(folder=real("mnist"), clients=20, samples=2000, partition=KLabels(labels_per_client=2))
    federation = source.build(STREAMS)
    x = train_of(federation).x
    assert x.shape[1:] == (1, 28, 28)
    assert x.dtype == torch.float32
    assert float(x.min()) == pytest.approx(-0.1307 / 0.3081, abs=1e-5)
    assert float(x.max()) == pytest.approx((1 - 0.1307) / 0.3081, abs=1e-5)
    assert ((federation.label_counts() > 0).sum(1) <= 2).all()
    assert len(held_out_test_set(federation)) == 10_000


@pytest.mark.data
def test_golden_fashion_mnist_has_its_published_counts_and_moments(real: Real) -> None:
    federation = FashionMnist(folder=real("fashion-mnist"), clients=60).build(STREAMS)
    assert federation.label_counts().sum(0).tolist() == [6000] * 10
    assert torch.bincount(held_out_test_set(federation).y).tolist() == [1000] * 10
    x = train_of(federation).x
    assert float(x.mean()) == pytest.approx(0.0, abs=5e-4)
    assert float(x.std()) == pytest.approx(1.0, abs=5e-4)


@pytest.mark.data
def test_error_fashion_mnist_in_the_place_of_mnist_is_noticed_by_its_hash(real: Real) -> None:
    folder = str(Path(real("fashion-mnist")) / "fashion-mnist")
    with pytest.raises(
        DataError, match=r"MNIST: .*train-images-idx3-ubyte\.gz is damaged or is another file: .*sha256"
    ):
        read_mnist(folder)


@pytest.mark.data
def test_golden_mnist_has_539_training_and_297_test_writers(real: Real) -> None:
    root = real("mnist", "mnist-writers")
    train, test = read_rows(TRAIN, root), read_rows(TEST, root)[:10_000]
    images = read_mnist(root)
    assert np.array_equal(train[:, CLASS], images[0].labels)
    assert np.array_equal(test[:, CLASS], images[1].labels)
    assert len(np.unique(train[:, WRITER])) == 539
    assert len(np.unique(test[:, WRITER])) == 297
    assert not np.intersect1d(train[:, WRITER], test[:, WRITER]).size


@pytest.mark.data
def test_golden_a_client_of_mnist_writers_is_one_writer_and_holds_all_of_its_digits(real: Real) -> None:
    root = real("mnist", "mnist-writers")
    federation = MnistWriters(folder=root).build(STREAMS)
    assert (federation.num_clients, federation.sizes.min(), federation.sizes.max()) == (539, 19, 131)
    assert federation.label_counts().sum(0).tolist() == MNIST_COUNTS
    few = MnistWriters(folder=root, clients=3).build(STREAMS)
    rows, labels = read_rows(TRAIN, root), read_mnist(root)[0].labels
    for client, name in enumerate(present(few.client_names)):
        mine = labels[rows[:, WRITER] == int(name)]
        assert np.array_equal(few.label_counts()[client], np.bincount(mine, minlength=10))


@pytest.mark.data
def test_error_more_writers_than_there_are(real: Real) -> None:
    with pytest.raises(DataError, match=r"There are 539 writers; got clients = 540\. Set data\.clients to 539 or less"):
        MnistWriters(folder=real("mnist", "mnist-writers"), clients=540).build(STREAMS)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.astype("u1").tobytes()


def test_golden_emnist_is_turned_upright_and_letters_start_at_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPLITS, "letters", Split(26, 26, 26, first_label=1))
    pixels = np.zeros((26, 28, 28), dtype=np.uint8)
    pixels[:, 5, 20] = 255  # the files hold columns first: this is row 20, column 5
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as bundle:
        for file in split_files("letters"):
            array = pixels if "images" in file.name else np.arange(1, 27, dtype=np.uint8)
            bundle.writestr(f"gzip/{file.name}", idx(array))
    federation = Emnist(split="letters", clients=2, folder=str(tmp_path)).build(STREAMS)
    share = 1 / 784
    std = (share * (1 - share)) ** 0.5
    assert federation.name == "emnist-letters"
    assert federation.label_counts().sum(0).tolist() == [1] * 26
    image = train_of(federation).x[0, 0]
    assert float(image[20, 5]) == pytest.approx((1 - share) / std, rel=1e-5)
    assert float(image[5, 20]) == pytest.approx(-share / std, rel=1e-4)


def test_golden_emnist_files_have_the_published_sizes() -> None:
    names = {file.name: file.size for split in SPLITS for file in split_files(split)}
    assert len(names) == 20
    assert names["emnist-letters-train-images-idx3-ubyte"] == 16 + 124_800 * 784
    assert names["emnist-byclass-test-labels-idx1-ubyte"] == 8 + 116_323


def test_error_emnist_labels_outside_the_split_are_refused() -> None:
    images = Images(np.zeros((1, 1, 28, 28), dtype=np.uint8), np.array([0]))
    with pytest.raises(DataError, match=r"EMNIST labels must lie in 1…26 in this split; got 0…0"):
        upright(images, SPLITS["letters"])


# ------------------------------------------------------------------------------------------------ CIFAR-10


def test_golden_a_cifar_batch_is_label_then_red_green_blue_planes() -> None:
    row = bytes([7]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1023 + bytes([9])
    images = parse_batch(row, "batch")
    assert images.labels.tolist() == [7]
    assert images.pixels[0, :, 0, 0].tolist() == [1, 2, 3]
    assert images.pixels[0, 2, 31, 31] == 9


@pytest.mark.data
def test_golden_a_folder_with_one_cifar_batch_is_used_and_named_so(real: Real) -> None:
    root = real("cifar-10-subset")
    federation = Cifar10(folder=root, clients=10, samples=500).build(STREAMS)
    assert federation.name == "cifar-10 (1 of 5 training batches)"
    assert federation.example_shape == (3, 32, 32)
    train, test, _ = read_cifar10(root)
    assert np.bincount(test.labels).tolist() == [1000] * 10
    assert len(train.labels) == 10_000
    by_channel = train.pixels.mean((0, 2, 3)) / 255
    assert by_channel.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.005)  # one fifth of the set


def test_error_cifar_labels_above_nine_are_refused() -> None:
    with pytest.raises(DataError, match=r"CIFAR-10 labels must lie in 0…9; batch has 10"):
        parse_batch(bytes([10]) + bytes(3072), "batch")


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Digits(clients=0), r"Digits needs clients >= 1; got 0\. Change data\.clients"),
        (lambda: Mnist(clients=10, samples=9), r"Mnist needs samples >= clients; got 9 < 10\. Set data\.samples to 10"),
        (lambda: FashionMnist(holdout=1.0), r"FashionMnist needs holdout in \[0, 1\); got 1\.0"),
        (lambda: Cifar10(server_samples=-1), r"Cifar10 needs server_samples >= 0; got -1"),
        (lambda: Emnist(split="greek"), r'Emnist needs split to be one of "balanced", "byclass", .*; got "greek"'),  # type: ignore[arg-type]
        (
            lambda: MnistWriters(clients=0),
            r"MnistWriters needs clients >= 1; got 0\. Change data\.clients",
        ),
        (lambda: Femnist(holdout=-0.1), r"Femnist needs holdout in \[0, 1\); got -0\.1"),
        (lambda: Shakespeare(stride=0), r"Shakespeare needs stride >= 1; got 0"),
        (lambda: Shakespeare(edition="folio"), r'Shakespeare needs edition to be one of "tiny", "plays"; got "folio"'),  # type: ignore[arg-type]
        (lambda: Shakespeare(test_share=0.5, holdout=0.5), r"test_share \+ holdout < 1; got 0\.5 and 0\.5"),
        (lambda: Hapt(hop=0), r"Hapt needs hop >= 1; got 0"),
        (lambda: Hapt(test_people=-1), r"Hapt needs test_people >= 0; got -1"),
    ],
)
def test_error_settings_out_of_range_say_what_to_change(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]


def test_error_more_samples_than_there_are() -> None:
    with pytest.raises(
        DataError, match=r"There are 1438 training samples; got samples = 2000\. Set data\.samples to 1438"
    ):
        Digits(clients=5, samples=2000).build(STREAMS)


@pytest.mark.parametrize("source", [Mnist(), FashionMnist(), Cifar10(), Emnist(), MnistWriters(), Shakespeare()])
def test_contract_what_is_nowhere_is_downloaded_over_https(
    source: object, nowhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refused(url: str, out: io.BufferedWriter, limit: int) -> None:
        asked.append(url)
        raise OSError("no network here")

    monkeypatch.setattr("turnout.data.files._stream", refused)
    with pytest.raises(DataError, match=r"it was not found and the download failed \(no network here\)\. Looked in: "):
        source.build(STREAMS)  # type: ignore[attr-defined]
    assert len(asked) == 1
    assert asked[0].startswith("https://")
