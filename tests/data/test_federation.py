from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.optional import present
from tests.support.tasks import held_out_test_set, holdout_of, server_of, train_of
from turnout.array_types import Ids
from turnout.data.assemble import Source, assemble, laid_out, shared
from turnout.data.federation import Federation, Held, Samples, from_clients
from turnout.data.holdout import train_sizes
from turnout.data.partition import Iid
from turnout.data.synthetic import Synthetic
from turnout.errors import DataError
from turnout.streams import Streams

STREAMS = Streams(5)


def store(n: int = 100, classes: int = 4) -> Samples:
    """Samples whose input names their row."""
    return Samples(torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 3), torch.arange(n) % classes)


def dealt(n: int, clients: int, seed: int = 0) -> list[Ids]:
    return Iid().split(np.zeros(n, dtype=np.int64), clients, np.random.default_rng(seed))


def build(parts: list[Ids], n: int = 100, **settings_: Any) -> Federation:
    samples = settings_.pop("store", store(n))
    return assemble(name="toy", store=samples, parts=parts, streams=STREAMS, num_classes=4, **settings_)


def rows(samples: Any) -> Any:
    return samples.x[:, 0].long().tolist()


# what each client holds


def test_golden_assemble_gives_each_client_its_rows_in_order() -> None:
    federation = build([np.array([7, 3]), np.array([99]), np.array([0, 50, 4])])
    assert [rows(train_of(federation).of(i)) for i in range(3)] == [[7, 3], [99], [0, 50, 4]]
    assert federation.sizes.tolist() == [2, 1, 3]
    assert federation.weights.tolist() == pytest.approx([2 / 6, 1 / 6, 3 / 6])
    assert federation.example_shape == (3,)
    assert federation.holdout is None
    assert federation.server is None


def test_golden_label_counts_of_some_and_all_clients() -> None:
    federation = build([np.array([0, 4, 1]), np.array([3]), np.array([2, 6])])
    assert federation.label_counts().tolist() == [[2, 1, 0, 0], [0, 0, 0, 1], [0, 0, 2, 0]]
    assert federation.label_counts(np.array([2])).tolist() == [[0, 0, 2, 0]]


def test_golden_hold_out_is_rounded_up_and_one_sample_always_trains() -> None:
    sizes = np.array([1, 2, 9, 10, 11, 70, 0])
    assert train_sizes(sizes, 0.1).tolist() == [1, 1, 8, 9, 9, 63, 0]
    assert train_sizes(sizes, 0.0).tolist() == sizes.tolist()
    assert train_sizes(np.array([10]), 0.9).tolist() == [1]
    assert train_sizes(np.array([5]), 0.99).tolist() == [1]


def test_golden_laid_out_cuts_one_tensor_into_train_and_hold_outs() -> None:
    samples = store(10)
    federation = laid_out(
        name="toy", x=samples.x, y=samples.y, train=np.array([3, 4]), holdout=np.array([1, 2]), num_classes=4
    )
    assert [rows(train_of(federation).of(i)) for i in (0, 1)] == [[0, 1, 2], [3, 4, 5, 6]]
    assert [rows(holdout_of(federation).of(i)) for i in (0, 1)] == [[7], [8, 9]]
    assert rows(federation.test) == [7, 8, 9]


@settings(max_examples=50)
@given(
    clients=st.integers(1, 20),
    n=st.integers(20, 200),
    holdout=st.sampled_from([0.0, 0.1, 0.3, 0.9]),
    server=st.integers(0, 30),
    seed=st.integers(0, 5),
)
def test_property_every_sample_has_one_place_and_nobody_is_left_empty(
    clients: int, n: int, holdout: float, server: int, seed: int
) -> None:
    server = min(server, n - clients)
    federation = build(dealt(n, clients, seed), n=n, holdout=holdout, server_samples=server)
    places = [row for i in range(clients) for row in rows(train_of(federation).of(i))]
    if federation.holdout is not None:
        places += [row for i in range(clients) for row in rows(federation.holdout.of(i))]
    places += rows(federation.server) if federation.server else []
    assert sorted(places) == list(range(n))
    assert federation.sizes.min() >= 1
    assert (0 if federation.server is None else len(federation.server)) == server


def test_contract_a_clients_hold_out_is_its_own_and_depends_on_nobody_else() -> None:
    parts = dealt(100, 5)
    all_, fewer = build(parts, holdout=0.2), build([*parts[:2], parts[3][:7]], holdout=0.2)
    for i in (0, 1):
        assert rows(holdout_of(all_).of(i)) == rows(holdout_of(fewer).of(i))
        assert set(rows(holdout_of(all_).of(i))) < set(parts[i].tolist())


def test_property_hold_outs_and_server_samples_are_drawn_evenly() -> None:
    position = np.zeros(10)
    taken = np.zeros(40)
    for seed in range(400):
        federation = assemble(
            name="toy",
            store=store(40),
            parts=list(np.arange(40).reshape(4, 10)),
            streams=Streams(seed),
            holdout=0.2,
            num_classes=4,
        )
        held = np.concatenate([rows(holdout_of(federation).of(i)) for i in range(4)])
        position += np.bincount(held % 10, minlength=10)
        taken[rows(build_with_server(seed))] += 1
    assert np.abs(position / 1600 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 1600)
    assert np.abs(taken / 400 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 400)


def build_with_server(seed: int) -> Samples:
    parts = list(np.arange(40).reshape(4, 10))
    return assemble(  # type: ignore[return-value]
        name="toy", store=store(40), parts=parts, streams=Streams(seed), server_samples=10, num_classes=4
    ).server


def test_contract_the_server_leaves_one_sample_to_a_client_that_has_one() -> None:
    federation = build([np.array([5]), np.arange(10, 20)], server_samples=9)
    assert federation.sizes.tolist() == [1, 1]
    assert rows(train_of(federation).of(0)) == [5]


# memory


def test_contract_samples_are_stored_once_whatever_the_partition() -> None:
    samples = store(1000)
    one = build(dealt(1000, 10), store=samples, holdout=0.2)
    two = build(dealt(1000, 100, seed=1), store=samples)
    for held in (one.train, one.holdout, two.train):
        assert present(held).x.data_ptr() == samples.x.data_ptr()  # type: ignore[attr-defined]
        assert present(held).y.data_ptr() == samples.y.data_ptr()  # type: ignore[attr-defined]


def test_contract_beside_the_samples_a_federation_keeps_four_bytes_a_sample_and_a_few_words_a_client() -> None:
    n, clients = 10_000, 100
    federation = build(dealt(n, clients), n=n, holdout=0.1)
    order = present(train_of(federation).order).nbytes + present(holdout_of(federation).order).nbytes
    assert order == 4 * n
    assert train_of(federation).offsets.nbytes + holdout_of(federation).offsets.nbytes == 2 * 8 * (clients + 1)


def test_contract_samples_already_in_client_order_need_no_index() -> None:
    samples = store(20)
    held = shared(samples, np.arange(5, 15), np.array([4, 6]))
    assert held.order is None
    assert held.x.untyped_storage().data_ptr() == samples.x.untyped_storage().data_ptr()
    assert rows(held.of(1)) == [9, 10, 11, 12, 13, 14]


def test_contract_fetch_copies_nothing() -> None:
    federation = build(dealt(100, 5))
    slab = federation.train.fetch(np.array([1, 3]))
    assert slab.x.data_ptr() == train_of(federation).x.data_ptr()
    picked = [
        present(slab.order)[start : start + size].tolist() for start, size in zip(slab.starts, slab.sizes, strict=True)
    ]
    assert picked == [rows(train_of(federation).of(1)), rows(train_of(federation).of(3))]


# from_clients


def test_golden_from_clients_keeps_clients_and_counts_classes() -> None:
    federation = from_clients(
        [(torch.zeros(2, 5), torch.tensor([0, 1])), (torch.ones(1, 5), torch.tensor([1]))],
        test=(torch.zeros(1, 5), torch.tensor([6])),
    )
    assert federation.sizes.tolist() == [2, 1]
    assert federation.num_classes == 7
    assert torch.equal(train_of(federation).of(1).x, torch.ones(1, 5))


def test_contract_a_federation_moves_to_a_device_whole() -> None:
    federation = build(dealt(100, 5), holdout=0.1, server_samples=3, test=store(4)).to(torch.device("cpu"))
    assert isinstance(federation, Federation)
    assert len(held_out_test_set(federation)) == 4
    assert len(server_of(federation)) == 3


def test_contract_generators_are_sources() -> None:
    assert isinstance(Synthetic(), Source)


# messages


def nan_store() -> Any:
    samples = store()
    samples.x[3, 1] = float("nan")
    return samples


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build([]), r"at least one client; got none\. Set data\.clients to 1 or more"),
        (lambda: build([np.array([1]), np.array([], dtype=np.int64)]), r"1 of 2 have none \(the first is client 1\)"),
        (lambda: build([np.array([1, 100])]), r"must point into the 100 samples; got positions 1…100"),
        (lambda: build([np.array([-1, 4])]), r"must point into the 100 samples; got positions -1…4"),
        (lambda: build([np.array([1, 2]), np.array([2])]), r"1 are assigned more than once \(the first is sample 2\)"),
        (lambda: build(dealt(100, 2), holdout=1.0), r"holdout must lie in \[0, 1\); got 1\.0\. Set data\.holdout"),
        (
            lambda: build(dealt(100, 60), server_samples=41),
            r"got 41 of 100 samples held by 60 clients\. Set.*at most 40",
        ),
        (lambda: build(dealt(100, 60), server_samples=-1), r"must leave every client one sample; got -1"),
        (
            lambda: build(dealt(100, 3), client_names=("a",)),
            r"names must be one per client; got 1 for 3 clients\. Pass 3 names",
        ),
        (lambda: build(dealt(100, 2), store=nan_store()), r"training inputs must be finite; 1 of 100 samples hold NaN"),
        (
            lambda: build(dealt(100, 2), store=store(classes=9)),
            r"labels must lie in 0…3 for 4 classes; got 0…8\. Renum",
        ),
        (lambda: build(dealt(100, 2), test=store(9, classes=5)), r"The test labels must lie in 0…3"),
        (lambda: from_clients([]), r"from_clients needs at least one client; got an empty list"),
        (lambda: Held(torch.zeros(3, 1), torch.zeros(2), np.array([0, 2])), r"got 3 samples and 2 labels"),
        (lambda: Held(torch.zeros(3, 1), torch.zeros(3), np.array([0, 2])), r"offsets that rise from 0 to 3"),
    ],
)
def test_error_bad_data_is_named_with_the_way_out(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()
