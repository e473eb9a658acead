from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tests.support.tasks import held_out_test_set, train_of
from turnout.data.converters import from_dataset, from_flwr
from turnout.errors import DataError


class Items(Dataset):  # type: ignore[type-arg]
    """A Dataset from a list."""

    def __init__(self, items: list[Sequence[Any]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Sequence[Any]:
        return self.items[i]


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(())


class Picture:
    """Stands in for a PIL image: np.array() and getbands() are what the bridge uses."""

    def __init__(self, pixels: NDArray[Any]) -> None:
        self.pixels = pixels

    def getbands(self) -> Any:
        return ("L",) if self.pixels.ndim == 2 else ("R", "G", "B")

    def __array__(self, dtype: None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.pixels.astype(dtype or self.pixels.dtype)


class Partitioner:
    num_partitions = 3


class Flower:
    """The three members of flwr_datasets.FederatedDataset that the bridge uses, over real digits."""

    def __init__(self, rows: list[dict[str, Any]], test: list[dict[str, Any]] | None) -> None:
        self.rows, self.test = rows, test
        self.partitioners = {"train": Partitioner()}

    def load_partition(self, partition_id: int, split: str | None = None) -> list[dict[str, Any]]:
        assert split == "train"
        return self.rows[partition_id::3]

    def load_split(self, split: str) -> list[dict[str, Any]]:
        assert split == "test"
        return self.test  # type: ignore[return-value]


def digit_rows(lo: int, hi: int) -> list[dict[str, Any]]:
    digits = load_digits()
    pixels = (digits.images[lo:hi] * 15).astype(np.uint8)
    return [{"image": Picture(p), "label": int(y)} for p, y in zip(pixels, digits.target[lo:hi], strict=True)]


# torch datasets


def test_golden_from_dataset_groups_items_by_client() -> None:
    dataset = Items([(torch.full((2,), float(i)), i % 3) for i in range(6)])
    federation = from_dataset(dataset, ["b", "a", "b", "c", "a", "b"], name="mine")
    assert [train_of(federation).of(i).x[:, 0].tolist() for i in range(3)] == [[1.0, 4.0], [0.0, 2.0, 5.0], [3.0]]
    assert train_of(federation).of(1).y.tolist() == [0, 2, 2]
    assert federation.client_names == ("a", "b", "c")
    assert federation.num_classes == 3
    assert federation.name == "mine"


def test_contract_from_dataset_shares_the_tensors_of_a_tensor_dataset() -> None:
    x, y = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
    federation = from_dataset(TensorDataset(x, y), [1, 0] * 5, test=(x[:3], torch.tensor([0, 5, 1])))
    assert train_of(federation).x.data_ptr() == x.data_ptr()
    assert federation.num_classes == 6
    assert len(held_out_test_set(federation)) == 3


def test_contract_from_dataset_takes_arrays_images_and_regression_targets() -> None:
    arrays = from_dataset(
        Items([(np.ones((2, 2)), 0.5), (np.zeros((2, 2)), 1.5)]), [0, 1], test=Items([(np.ones((2, 2)), 0.0)])
    )
    assert train_of(arrays).x.dtype == train_of(arrays).y.dtype == torch.float32
    assert arrays.num_classes is None
    assert held_out_test_set(arrays).x.shape == (1, 2, 2)
    colour = np.zeros((4, 5, 3), dtype=np.uint8)
    colour[0, 1, 2] = 255
    images = from_dataset(Items([(Picture(colour), 1)]), [0])
    assert images.example_shape == (3, 4, 5)
    assert train_of(images).x[0, 2, 0, 1] == 1.0


# Flower


def test_golden_from_flwr_reads_every_partition_and_the_test_split() -> None:
    federation = from_flwr(Flower(digit_rows(0, 100), digit_rows(100, 130)))
    digits = load_digits()
    assert federation.sizes.tolist() == [34, 33, 33]
    assert federation.example_shape == (1, 8, 8)
    assert federation.num_classes == 10
    assert train_of(federation).of(1).y.tolist() == digits.target[1:100:3].tolist()
    assert np.allclose(train_of(federation).of(2).x[:, 0], digits.images[2:100:3] * 15 / 255)
    assert len(held_out_test_set(federation)) == 30
    assert from_flwr(Flower(digit_rows(0, 9), None), test_split=None).test is None


def test_golden_from_flwr_reads_a_real_federated_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the flwr-datasets package")
    flwr_datasets = pytest.importorskip("flwr_datasets", reason="needs the flwr-datasets package")
    from flwr_datasets.partitioner import NaturalIdPartitioner

    digits = load_digits()
    for split, rows in (("train", slice(0, 120)), ("test", slice(120, 150))):
        columns = {
            "pixels": digits.data[rows].astype(np.float32).tolist(),
            "digit": digits.target[rows].tolist(),
            "writer": [str(i % 4) for i in range(len(digits.target[rows]))],
        }
        datasets.Dataset.from_dict(columns).to_parquet(tmp_path / f"{split}.parquet")
    federated = flwr_datasets.FederatedDataset(
        dataset="parquet",
        data_files={split: str(tmp_path / f"{split}.parquet") for split in ("train", "test")},
        cache_dir=str(tmp_path / "cache"),
        partitioners={"train": NaturalIdPartitioner(partition_by="writer")},
        shuffle=False,
    )
    federation = from_flwr(federated, feature="pixels", label="digit")
    assert federation.sizes.tolist() == [30] * 4
    assert train_of(federation).of(1).y.tolist() == digits.target[1:120:4].tolist()
    assert np.array_equal(train_of(federation).of(1).x, digits.data[1:120:4].astype(np.float32))
    assert len(held_out_test_set(federation)) == 30


# messages


def flower_without(column: Any) -> Any:
    rows = [{key: value for key, value in row.items() if key != column} for row in digit_rows(0, 6)]
    return Flower(rows, [])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: from_dataset(Items([(torch.zeros(1), 0)]), [0, 1]),
            r"one client id per item; got ids of shape \(2,\) for 1",
        ),
        (lambda: from_dataset(Items([]), []), r"at least one item; got an empty Dataset"),
        (lambda: from_dataset(Endless(), [0]), r"a Dataset with a length; got Endless\. Use a map-style Dataset"),
        (lambda: from_dataset(Items([torch.zeros(3)]), [0]), r"items \(x, y\); item 0 is a Tensor\. Wrap the Dataset"),  # type: ignore[list-item]
        (
            lambda: from_dataset(Items([("text", 0)]), [0]),
            r"Inputs must be numbers; got text\. Number the labels",
        ),
        (
            lambda: from_dataset(Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), [0, 0]),
            r"Inputs must share one shape; got \[\(2,\), \(3,\)\]\. Resize or pad",
        ),
        (
            lambda: from_flwr([1, 2]),  # type: ignore[arg-type]
            r"needs a flwr_datasets\.FederatedDataset; got list\. Install .* pip install flwr-datasets",
        ),
        (
            lambda: from_flwr(flower_without(""), split="val"),
            r"partitioner for split 'val'; the dataset has .*\['train'\]",
        ),
        (lambda: from_flwr(flower_without("image")), r"columns 'image' and 'label'; partition 0 has \['label'\]\. Set"),
        (lambda: from_flwr(flower_without("")), r"at least one sample; split 'test' has none"),
        (lambda: from_flwr(Flower(digit_rows(0, 2), [])), r"at least one sample; partition 2 has none"),
    ],
)
def test_error_what_cannot_be_bridged_is_named_with_the_way_out(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()
