"""Data of one's own: hold-outs, names, groups, and arrays that cannot be samples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, dtype
from torch.utils.data import TensorDataset

from tests.support.tasks import held_out_test_set, holdout_of, server_of, train_of
from turnout.data import Federation, Samples, from_clients, from_dataset, from_flwr
from turnout.data.holdout import drawn_for_holdout, train_sizes
from turnout.errors import DataError
from turnout.streams import Streams

SIZES = (10, 4, 1)


def pairs(sizes: tuple[int, int, int] = SIZES, width: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Clients whose inputs name their sample: no two are alike."""
    starts = np.cumsum([0, *sizes])
    xs = [
        torch.arange(a, a + n, dtype=torch.float32)[:, None].repeat(1, width)
        for a, n in zip(starts, sizes, strict=False)
    ]
    return [(x, x[:, 0].long() % 3) for x in xs]


def rows(samples: Samples) -> list[int]:
    return samples.x[:, 0].long().tolist()


class Flower:
    """The members of flwr_datasets.FederatedDataset that are used."""

    class Partitioner:
        num_partitions = len(SIZES)

    partitioners = {"train": Partitioner()}  # noqa: RUF012

    def load_partition(self, partition_id: int, split: str | None = None) -> list[dict[str, Tensor]]:
        x, y = pairs()[partition_id]
        return [{"image": a, "label": b} for a, b in zip(x, y, strict=True)]

    def load_split(self, split: str) -> list[dict[str, Tensor]]:
        return self.load_partition(0)


def made(how: str, **settings: Any) -> Federation:
    """Return the same clients, built in one of the three ways."""
    if how == "clients":
        return from_clients(pairs(), **settings)
    if how == "flwr":
        return from_flwr(Flower(), **settings)
    x, y = (torch.cat(parts) for parts in zip(*pairs(), strict=True))
    return from_dataset(TensorDataset(x, y), np.repeat(np.arange(len(SIZES)), SIZES), **settings)


@pytest.mark.parametrize("how", ["clients", "dataset", "flwr"])
def test_golden_a_share_of_each_client_is_held_out_by_key(how: str) -> None:
    federation, drawn = made(how, holdout=0.25), drawn_for_holdout
    sizes = np.array(SIZES)
    assert federation.sizes.tolist() == train_sizes(sizes, 0.25).tolist() == [7, 3, 1]
    assert holdout_of(federation).sizes.tolist() == [3, 1, 0]
    held_out = drawn(sizes, sizes - federation.sizes, Streams(0))
    everyone = np.arange(sizes.sum())
    assert [r for i in range(3) for r in rows(holdout_of(federation).of(i))] == everyone[held_out].tolist()
    assert [r for i in range(3) for r in rows(train_of(federation).of(i))] == everyone[~held_out].tolist()
    assert torch.equal(holdout_of(federation).of(0).y, holdout_of(federation).of(0).x[:, 0].long() % 3)


@pytest.mark.parametrize("how", ["clients", "dataset", "flwr"])
def test_contract_names_and_groups_stay_with_their_clients(how: str) -> None:
    federation = made(how, names=["Ada", "Bo", 3], groups=["north", "south", "north"])
    assert federation.client_names == ("Ada", "Bo", "3")
    assert federation.client_groups == ("north", "south", "north")
    assert federation.holdout is None


def test_golden_hold_outs_may_be_given_client_by_client() -> None:
    own = [(torch.full((2, 2), 50.0), torch.tensor([0, 7])), None, (np.full((1, 2), 60.0), np.array([1], np.int32))]
    federation = from_clients(pairs(), holdout=own)
    assert federation.sizes.tolist() == list(SIZES)
    assert holdout_of(federation).sizes.tolist() == [2, 0, 1]
    assert rows(holdout_of(federation).of(2)) == [60]
    assert federation.num_classes == 8  # the labels of the hold-outs count


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.int16, torch.bool])
def test_contract_labels_of_any_width_become_those_that_losses_take(kind: dtype) -> None:
    clients = [(x, (y > 0).to(kind)) for x, y in pairs()]
    federation = from_clients(clients, test=clients[0], server=clients[1])
    assert (
        train_of(federation).y.dtype
        == held_out_test_set(federation).y.dtype
        == server_of(federation).y.dtype
        == torch.int64
    )
    assert federation.num_classes == 2
    dataset = from_dataset(TensorDataset(*clients[0]), np.zeros(SIZES[0]))
    assert train_of(dataset).y.dtype == torch.int64


@pytest.mark.parametrize("how", [np.array, torch.tensor, list])
def test_contract_a_column_of_integers_is_one_label_per_sample(how: Any) -> None:
    clients = [(np.zeros((3, 2)), how([[0], [2], [1]])), (np.zeros((2, 2)), how([[1], [0]]))]
    federation: Any = from_clients(clients, test=(np.zeros((1, 2)), how([[1]])))
    assert federation.num_classes == 3
    assert federation.train.y.tolist() == [0, 2, 1, 1, 0]
    assert federation.test.y.shape == (1,)


def test_contract_a_column_of_floats_stays_a_regression() -> None:
    federation: Any = from_clients([(np.zeros((3, 2)), np.array([[0.0], [2.0], [1.0]]))])
    assert federation.num_classes is None
    assert federation.train.y.shape == (3, 1)


def test_contract_lists_and_arrays_become_samples_in_one_precision() -> None:
    federation = from_clients(
        [([[1.0, 2.0], [3.0, 4.0]], [0, 1]), (np.array([[5.0, 6.0]])[:, ::-1], np.array([1], np.uint16))],
        test=(torch.tensor([[7.0, 8.0]], dtype=torch.float64), [0]),
    )
    assert train_of(federation).x.dtype == held_out_test_set(federation).x.dtype == torch.float32
    assert train_of(federation).x.tolist() == [[1.0, 2.0], [3.0, 4.0], [6.0, 5.0]]


def flat(width: int, count: int = 1, targets: Any = None) -> tuple[Tensor, Tensor]:
    return torch.zeros(count, width), torch.zeros(count, dtype=torch.int64) if targets is None else targets


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: from_clients(pairs(), test=flat(3)),
            r"The test inputs must have the shape of the training inputs, \(2,\) a sample; got \(3,\)\. Prepare both",
        ),
        (lambda: from_clients(pairs(), server=flat(3)), r"The server inputs must have the shape .*got \(3,\)"),
        (
            lambda: from_clients(pairs(), holdout=[None, flat(3), None]),
            r"The hold-out inputs must have the shape .*client 1's have \(3,\)",
        ),
        (
            lambda: from_clients(pairs(), test=flat(2, targets=torch.zeros(1, 4, dtype=torch.int64))),
            r"The test targets must have the shape of the training targets, \(\) a sample; got \(4,\)",
        ),
        (
            lambda: from_clients(pairs(), test=flat(2, targets=torch.zeros(1)), num_classes=3),
            r"must be labels like the training targets; got floats\. Convert one",
        ),
        (lambda: from_clients(pairs(), test=flat(2, 0)), r"The test set needs .*at least one; got 0 inputs and 0"),
        (lambda: from_clients([([[1, 2], [3]], [0, 1])]), r"Client 0's inputs must have one shape .*differ in length"),
        (
            lambda: from_clients([([[1, 2]], ["cat"])]),
            r"Client 0's targets must be numbers; got text\. Number the labe",
        ),
        (lambda: from_clients([([["a", "b"]], [0])]), r"Client 0's inputs must be numbers; got text"),
        (lambda: from_clients([([{}], [0])]), r"Client 0's inputs must be numbers; got entries of kind object"),
        (lambda: from_clients([(3.0, [0])]), r"Client 0's inputs must hold one entry per sample; got a single number"),
        (
            lambda: from_clients(None),  # type: ignore[arg-type]
            r"from_clients needs a list of clients; got None\. Pass one \(x, y\) pair per client",
        ),
        (
            lambda: from_clients([(torch.zeros(2, 3), [-5, -3])]),
            r"The training labels must be numbered from 0; got -5…-3\. Renumber the labels\.$",
        ),
        (lambda: from_clients([torch.zeros(2, 3)]), r"Client 0's samples must be a pair \(x, y\); got Tensor"),  # type: ignore[list-item]
        (
            lambda: from_clients([(torch.zeros(3, 1), [0, 1]), (torch.zeros(1, 1), [0, 1])]),
            r"Client 0's samples need one target per input; got 3 inputs and 2 targets",
        ),
        (lambda: from_clients(pairs(), holdout=1.0), r"holdout must lie in \[0, 1\); got 1\.0"),
        (lambda: from_clients(pairs(), holdout=[None]), r"one \(x, y\) pair per client; got 1 entries for 3 clients"),
        (lambda: from_clients(pairs(), holdout="half"), r"holdout must be a fraction .*got 'half' for 3 clients"),  # type: ignore[arg-type]
        (lambda: from_clients(pairs(), names=["a"]), r"Client names must be one per client; got 1 for 3 clients"),
        (
            lambda: from_clients(pairs(), groups="north"),
            r"groups must be a list with one entry per client; got 'north'",
        ),
        (
            lambda: from_clients(pairs(), names=["a", "b\nc", "d"]),
            r"at most 200 printable characters each; got 'b\\nc'",
        ),
        (lambda: from_clients(pairs(), names=["a", "b", "a"]), r"Client names must differ; 'a' names 2 clients"),
        (
            lambda: from_dataset(TensorDataset(torch.zeros(2, 1), torch.zeros(2).long()), [0, 1], test=flat(9)),
            r"The test inputs must have the shape of the training inputs, \(1,\) a sample; got \(9,\)",
        ),
    ],
)
def test_error_what_cannot_be_a_sample_is_one_message(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_identity_clients_may_come_from_a_generator() -> None:
    listed, drawn = from_clients(pairs()), from_clients(pair for pair in pairs())
    assert drawn.num_clients == listed.num_clients == len(SIZES)
    assert drawn.train.sizes.tolist() == listed.train.sizes.tolist()
