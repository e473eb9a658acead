"""Converters to a federation: from a torch Dataset with client ids, or from a Flower FederatedDataset."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from turnout.data.arrays import as_inputs, as_names, as_targets
from turnout.data.assemble import assemble
from turnout.data.federation import (
    Federation,
    Samples,
    as_samples,
    checked,
    class_count,
    from_clients,
    public_inputs,
    sample_set,
)
from turnout.data.partition.natural import by_id, id_names
from turnout.errors import DataError
from turnout.streams import Streams

TestSet = Samples | tuple[Tensor, Tensor] | Dataset[Any]


@runtime_checkable
class FlowerDataset(Protocol):
    """The members of flwr_datasets.FederatedDataset that the converter uses."""

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
    public: Any = None,
    holdout: float = 0.0,
    names: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    num_classes: int | None = None,
    name: str = "dataset",
) -> Federation:
    """Build a federation from a Dataset of (x, y) items and the client of each item.

    Args:
        dataset: items are pairs (x, y) of tensors, arrays, numbers or images.
        client_ids: client of each item, of any sortable type; clients are numbered in ascending order of id.
        test: the global test set.
        public: inputs without labels that the server and all clients have, for Fed-ET and COMET.
        holdout: fraction of each client's samples in its own test set, rounded up; at least one sample remains for
            training. The draw is the same for every seed.
        names: name of each client in frames and reports; None uses its id.
        groups: group of each client, such as its region.
        num_classes: number of classes C; None is one more than the largest label, or regression if targets are floats.
        name: name of the federation in reports.
    """
    store = _samples(dataset)
    ids = np.asarray(client_ids)
    if ids.shape != (len(store),):
        raise DataError(
            f"from_dataset needs one client id per item; got ids of shape {ids.shape} for {len(store)} items. "
            "Pass a flat list of ids, as long as the dataset."
        )
    parts = by_id(ids)
    test_set = sample_set(None if test is None else _samples(test), "The test", store)
    federation = assemble(
        name=name,
        store=store,
        parts=parts,
        streams=Streams(0),
        test=test_set,
        holdout=holdout,
        num_classes=class_count([store, test_set]) if num_classes is None else num_classes,
        client_names=id_names(ids) if names is None else as_names(names, "names"),
        client_groups=as_names(groups, "groups"),
    )
    return federation if public is None else checked(replace(federation, public=public_inputs(public, store)))


def from_flwr(
    federated_dataset: FlowerDataset,
    *,
    feature: str = "image",
    label: str = "label",
    split: str = "train",
    test_split: str | None = "test",
    holdout: float = 0.0,
    names: Sequence[object] | None = None,
    groups: Sequence[object] | None = None,
    num_classes: int | None = None,
) -> Federation:
    """Build a federation from a flwr_datasets.FederatedDataset: client i is its partition i.

    Args:
        federated_dataset: a FederatedDataset, or anything with its three members.
        feature: the column of inputs; images become channels-first values in [0, 1].
        label: the column of targets.
        split: the split that is partitioned across clients.
        test_split: the split of the global test set; None for no test set.
        holdout: fraction of each client's samples in its own test set, rounded up; at least one sample remains for
            training. The draw is the same for every seed.
        names: name of each client in frames and reports; None numbers the clients.
        groups: group of each client, such as its region.
        num_classes: number of classes C; None is one more than the largest label.
    """
    if not isinstance(federated_dataset, FlowerDataset):
        raise DataError(
            f"from_flwr needs a flwr_datasets.FederatedDataset; got {type(federated_dataset).__name__}. "
            "Install it with: pip install flwr-datasets, and pass the object itself."
        )
    if split not in federated_dataset.partitioners:
        raise DataError(
            f"from_flwr needs a partitioner for split {split!r}; the dataset has them for "
            f"{list(federated_dataset.partitioners)}. Set split to one of those."
        )
    first = federated_dataset.load_partition(0, split)  # some partitioners know num_partitions only after this call
    count = int(federated_dataset.partitioners[split].num_partitions)
    partitions = [first, *(federated_dataset.load_partition(i, split) for i in range(1, count))]
    clients = [_columns(rows, feature, label, f"partition {i}") for i, rows in enumerate(partitions)]
    rows = None if test_split is None else federated_dataset.load_split(test_split)
    test = None if rows is None else _columns(rows, feature, label, f"split {test_split!r}")
    return from_clients(
        clients, test=test, holdout=holdout, names=names, groups=groups, num_classes=num_classes, name="flwr"
    )


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
    return Samples(_stacked(xs, "Inputs"), _stacked(ys, "Targets"))


def _samples(items: TestSet) -> Samples:
    """Return the samples of a Dataset or of a pair of tensors."""
    if isinstance(items, tuple):
        return as_samples(items, "The test")
    if isinstance(items, TensorDataset) and len(items.tensors) == 2:
        return as_samples(items.tensors, "The dataset's")  # does not copy the tensors
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
    xs, ys = [_input(x) for x, _ in pairs], [_target(y) for _, y in pairs]
    return Samples(_stacked(xs, "Inputs"), _stacked(ys, "Targets"))


def _input(value: Any) -> Tensor:
    """Return an input as a tensor; an image becomes channels-first values in [0, 1]."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "getbands"):  # a PIL image
        pixels = torch.from_numpy(np.array(value).astype(np.float32) / 255.0)
        return pixels[None] if pixels.dim() == 2 else pixels.movedim(-1, 0)
    return as_inputs([value], "Inputs")[0]


def _target(value: Any) -> Tensor:
    target = as_targets(value[None] if isinstance(value, Tensor) else [value], "Targets")[0]
    return target.float() if target.dtype == torch.float64 else target


def _stacked(values: list[Tensor], what: str) -> Tensor:
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) > 1:
        raise DataError(f"{what} must share one shape; got {sorted(shapes)[:4]}. Resize or pad them first.")
    return torch.stack(values)
