"""Federations from what you already have: a torch Dataset with client ids, or a Flower FederatedDataset."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from turnout.data.assemble import shared
from turnout.data.federation import Federation, Samples, checked, from_clients
from turnout.data.partition.natural import by_id, id_names
from turnout.errors import DataError

TestSet = Samples | tuple[Tensor, Tensor] | Dataset[Any]


@runtime_checkable
class FlowerDataset(Protocol):
    """What is used of a flwr_datasets.FederatedDataset."""

    @property
    def partitioners(self) -> Mapping[str, Any]:
        """The partitioner of each split."""
        ...

    def load_partition(self, partition_id: int, split: str | None = None) -> Iterable[Mapping[str, Any]]:
        """Return the rows of one client."""
        ...

    def load_split(self, split: str) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a whole split."""
        ...


def from_dataset(
    dataset: Dataset[Any],
    client_ids: ArrayLike,
    *,
    test: TestSet | None = None,
    num_classes: int | None = None,
    name: str = "dataset",
) -> Federation:
    """Build a federation from a Dataset of (x, y) items and the client of each item.

    Args:
        dataset: items are (x, y); tensors, arrays, numbers and images are understood.
        client_ids: one per item, of any kind that sorts; clients are numbered in rising order of id.
        test: the global test set.
        num_classes: left out, one more than the largest label; None stays for targets that are not labels.
        name: what the federation is called in reports.
    """
    store = _samples(dataset)
    ids = np.asarray(client_ids)
    if ids.shape != (len(store),):
        raise DataError(
            f"from_dataset needs one client id per item; got ids of shape {ids.shape} for {len(store)} items. "
            "Pass a flat list of ids, as long as the dataset."
        )
    parts = by_id(ids)
    test_set = None if test is None else _samples(test)
    return checked(
        Federation(
            train=shared(store, np.concatenate(parts), np.array([len(part) for part in parts])),
            test=test_set,
            name=name,
            num_classes=_classes(num_classes, store, test_set),
            example_shape=tuple(store.x.shape[1:]),
            client_names=id_names(ids),
            example=store.x[:1].clone(),
        )
    )


def from_flwr(
    federated_dataset: FlowerDataset,
    *,
    feature: str = "image",
    label: str = "label",
    split: str = "train",
    test_split: str | None = "test",
    num_classes: int | None = None,
) -> Federation:
    """Build a federation from a flwr_datasets.FederatedDataset: client i is its partition i.

    Args:
        federated_dataset: a FederatedDataset, or anything with its three members.
        feature: the column of inputs; images become channels-first numbers in [0, 1].
        label: the column of targets.
        split: the split that is partitioned over clients.
        test_split: the split of the global test set; None for no test set.
        num_classes: left out, one more than the largest label.
    """
    if not isinstance(federated_dataset, FlowerDataset):
        raise DataError(
            f"from_flwr needs a flwr_datasets.FederatedDataset; got {type(federated_dataset).__name__}. "
            "Install it with the extra turnout[flower] and pass the object itself."
        )
    if split not in federated_dataset.partitioners:
        raise DataError(
            f"from_flwr needs a partitioner for split {split!r}; the dataset has them for "
            f"{list(federated_dataset.partitioners)}. Set split to one of those."
        )
    first = federated_dataset.load_partition(0, split)  # some partitioners know their number only after this
    count = int(federated_dataset.partitioners[split].num_partitions)
    partitions = [first, *(federated_dataset.load_partition(i, split) for i in range(1, count))]
    clients = [_columns(rows, feature, label, f"partition {i}") for i, rows in enumerate(partitions)]
    rows = None if test_split is None else federated_dataset.load_split(test_split)
    test = None if rows is None else _columns(rows, feature, label, f"split {test_split!r}")
    return from_clients(clients, test=test, num_classes=num_classes, name="flwr")


def _columns(rows: Iterable[Mapping[str, Any]], feature: str, label: str, where: str) -> Samples:
    xs, ys = [], []
    for row in rows:
        if feature not in row or label not in row:
            raise DataError(
                f"from_flwr needs columns {feature!r} and {label!r}; {where} has {sorted(row)}. Set feature and label."
            )
        xs.append(_input(row[feature]))
        ys.append(_target(row[label]))
    if not ys:
        raise DataError(
            f"Every client needs at least one sample; {where} has none. Use a partitioner with fewer clients."
        )
    return Samples(_stacked(xs), torch.stack(ys))


def _samples(items: TestSet) -> Samples:
    """Return a Dataset, or a pair of tensors, as samples."""
    if isinstance(items, tuple):
        return Samples(torch.as_tensor(items[0]), torch.as_tensor(items[1]))
    if isinstance(items, TensorDataset) and len(items.tensors) == 2:
        return Samples(*items.tensors)  # no copy
    if not hasattr(items, "__len__"):
        raise DataError(
            f"from_dataset needs a Dataset with a length; got {type(items).__name__}. Use a map-style Dataset."
        )
    count = len(items)
    if count == 0:
        raise DataError("from_dataset needs at least one item; got an empty Dataset. Check where it reads from.")
    pairs = [items[i] for i in range(count)]
    if not isinstance(pairs[0], tuple | list) or len(pairs[0]) != 2:
        raise DataError(
            f"from_dataset needs items (x, y); item 0 is a {type(pairs[0]).__name__}. Wrap the Dataset to return pairs."
        )
    return Samples(_stacked([_input(x) for x, _ in pairs]), torch.stack([_target(y) for _, y in pairs]))


def _input(value: Any) -> Tensor:
    """Return an input as a tensor; an image becomes channels-first numbers in [0, 1]."""
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    if hasattr(value, "getbands"):  # a PIL image
        pixels = torch.from_numpy(array.astype(np.float32) / 255.0)
        return pixels[None] if pixels.dim() == 2 else pixels.movedim(-1, 0)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"Inputs must be tensors, arrays, numbers or images; got {type(value).__name__}. "
            "Give the Dataset a transform that returns tensors."
        )
    return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)


def _target(value: Any) -> Tensor:
    target = torch.as_tensor(value)
    return target.float() if target.dtype == torch.float64 else target


def _stacked(inputs: list[Tensor]) -> Tensor:
    shapes = {tuple(value.shape) for value in inputs}
    if len(shapes) > 1:
        raise DataError(f"Inputs must share one shape; got {sorted(shapes)[:4]}. Resize or pad them first.")
    return torch.stack(inputs)


def _classes(num_classes: int | None, store: Samples, test: Samples | None) -> int | None:
    if num_classes is not None or store.y.is_floating_point() or store.y.dim() != 1:
        return num_classes
    return max(int(samples.y.max()) for samples in (store, test) if samples is not None and len(samples)) + 1
