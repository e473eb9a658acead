"""Sums are reduced block by block, and what a plain network needs is written out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.support.engine_requests import answered, offset_of, request
from tests.support.optional import present
from tests.support.tasks import blob_federation, blob_task, wide_task
from turnout import losses
from turnout.array_types import Floats
from turnout.data.federation import Slab, from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.reduction import multiple
from turnout.engine.vectorised.autotune import Execution, candidates, evenly
from turnout.engine.vectorised.jobs import LITTLE, Jobs, block_bounds, collect_jobs
from turnout.engine.vectorised.kernels import Stacked
from turnout.engine.vectorised.loss_accumulator import MOST_PENDING, LossAccumulator
from turnout.engine.vectorised.lowering import Lowered
from turnout.engine.vectorised.mlp import Dense, is_plain
from turnout.engine.vectorised.stacked_training import BlockResult, train_block
from turnout.local import SGD
from turnout.models.layout import Layout
from turnout.offset import Offset


def jobs_of(sizes: Any, batch_size: int | None = None) -> Jobs:
    """Return rows of clients that hold so much, in the order in which they are stacked."""
    task = blob_task(len(sizes))
    local = SGD(lr=0.1, batch_size=batch_size, steps=2)
    sizes = np.array(sizes)
    slab = Slab(torch.zeros(1, 4), torch.zeros(1), np.cumsum(sizes) - sizes, sizes, None)
    return collect_jobs([request(task, None, local)], [slab])


@pytest.mark.parametrize("block", [1, 3, 100])
def test_engine_the_sum_is_that_of_the_rows_and_no_rows_are_kept(block: int) -> None:
    task = blob_task(7)
    shares = np.linspace(-1, 2, 7)
    engine = Vectorised("cpu", block=block)
    rows = answered(engine, task, request(task, None))
    summed = answered(engine, task, request(task, shares))
    assert summed.delta is None  # memory does not grow with the cohort
    assert rows.reduced is None
    assert torch.allclose(summed.reduced, torch.tensor(shares) @ rows.delta, rtol=0, atol=1e-12)


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=40), st.integers(1, 12))
def test_property_blocks_hold_every_row_once_and_little_padding(sizes: list[int], block: int) -> None:
    jobs = jobs_of(sizes)
    bounds = block_bounds(jobs, block)
    assert [at for low, high in bounds for at in range(low, high)] == list(range(len(sizes)))
    for low, high in bounds:
        widths = jobs.sizes[low:high]
        assert 0 < high - low <= block
        assert (high - low) * widths.max() <= 1.5 * widths.sum() + LITTLE


def test_golden_one_large_client_gets_a_block_of_its_own() -> None:
    jobs = jobs_of([10, 100_000, 12, 11])
    assert jobs.sizes.tolist() == [100_000, 12, 11, 10]  # the widest first
    assert block_bounds(jobs, 100) == [(0, 1), (1, 4)]
    assert block_bounds(jobs_of([10, 100_000, 12, 11], batch_size=10), 3) == [(0, 3), (3, 4)]  # all ten wide


@pytest.mark.parametrize(
    ("layers", "is_dense"),
    [
        ([nn.Linear(4, 3)], True),
        ([nn.Flatten(), nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)], True),
        ([nn.Linear(4, 5), nn.Linear(5, 3)], True),
        ([nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 17, bias=False), nn.ReLU(), nn.Linear(17, 3)], True),
        ([nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3), nn.ReLU(), nn.Linear(3, 18)], True),
        ([nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)], True),
        ([nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)], False),
        ([nn.Linear(4, 3), nn.ReLU()], False),
        ([nn.ReLU(), nn.Linear(4, 3)], True),
    ],
)
def test_engine_plain_networks_by_hand_give_autograds_numbers(layers: list[Any], is_dense: bool) -> None:
    module = nn.Sequential(*layers).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    task = Task(federation=blob_federation(6), module=module, loss=losses.cross_entropy)
    assert is_plain(Lowered(module, task.layout, task.loss)) is is_dense
    assert not is_plain(Lowered(module, task.layout, losses.squared_error))
    by_hand, by_autograd = Vectorised("cpu", block=4), Vectorised("cpu", block=4)
    prepared = by_autograd._prepare(task)
    prepared.kernels = (Stacked("lowered", Lowered(module, task.layout, task.loss), task),)
    mine = answered(by_hand, task, request(task, None))
    theirs = answered(by_autograd, task, request(task, None))
    assert ("dense" in names_of(by_hand, task)) is is_dense
    assert torch.allclose(mine.delta, theirs.delta, rtol=0, atol=1e-12)
    assert np.allclose(mine.loss, theirs.loss, rtol=0, atol=1e-12)


def test_engine_outputs_too_large_for_an_exponential_are_as_the_reference_has_them() -> None:
    task = blob_task(4)
    with torch.no_grad():
        list(task.module.parameters())[-2].mul_(1e4)  # the last weight: outputs in the thousands
    mine = answered(Vectorised("cpu", block=4), task, request(task, None))
    theirs = answered(Sequential(), task, request(task, None))
    assert torch.isfinite(mine.delta).all()
    assert torch.allclose(mine.delta, theirs.delta)
    assert np.allclose(mine.loss, theirs.loss)


def test_golden_the_tally_adds_what_it_held_back() -> None:
    tally, one = LossAccumulator(2, torch.device("cpu")), torch.ones(2, 1, 1)
    for _ in range(MOST_PENDING + 3):  # loss 4 and 9 a step, then the second row is done
        tally.add_samples(one, torch.tensor([[[-4.0]], [[-9.0]]]), None)
    tally.add_samples(torch.ones(1, 2, 1), torch.tensor([[[-1.0], [-25.0]]]), torch.tensor([[1.0, 0.0]]))
    assert tally.sums().tolist() == [4.0 * (MOST_PENDING + 3) + 1.0, 9.0 * (MOST_PENDING + 3)]


def names_of(engine: Vectorised, task: Task) -> list[str]:
    return [kernel.name for kernel in engine._prepare(task).kernels]


def even_task() -> Task:
    """Clients of ten samples each, so that batches of five are all full and no weights are needed."""
    rng = np.random.default_rng(0)
    pairs = [(torch.tensor(rng.normal(size=(10, 4))), torch.tensor(rng.integers(0, 3, 10))) for _ in range(6)]
    module = blob_task(1).module
    return Task(federation=from_clients(pairs, num_classes=3), module=module, loss=losses.cross_entropy)


def test_engine_full_batches_take_the_mean_as_the_reference_does() -> None:
    task = even_task()
    reference = answered(Sequential(), task, request(task, None))
    engine = Vectorised("cpu", block=4)
    mine = answered(engine, task, request(task, None))
    assert "dense" in names_of(engine, task)
    assert torch.allclose(mine.delta, reference.delta, rtol=0, atol=1e-12)
    assert np.allclose(mine.loss, reference.loss, rtol=0, atol=1e-12)
    lowered = Vectorised("cpu", block=4)
    lowered._prepare(task).kernels = (Stacked("lowered", Lowered(task.module, task.layout, task.loss), task),)
    theirs = answered(lowered, task, request(task, None))
    assert torch.allclose(theirs.delta, reference.delta, rtol=0, atol=1e-12)
    assert np.allclose(theirs.loss, reference.loss, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.9, 0.5, 0.01])
def test_engine_a_velocity_that_is_held_scaled_comes_to_the_same_over_many_steps(
    momentum: float, nesterov: bool
) -> None:
    task, plain = blob_task(5), SGD(lr=0.05, batch_size=4, steps=(20, 90), weight_decay=0.1, prox_strength=0.2)
    local = replace(plain, momentum=momentum, nesterov=nesterov)
    mine = answered(Vectorised("cpu", block=3), task, request(task, None, local))
    theirs = answered(Sequential(), task, request(task, None, local))
    assert torch.allclose(mine.delta, theirs.delta, rtol=0, atol=1e-11)


def in_balance(offset: Any, shares: Floats) -> Offset:
    """Offset of equal work with c = Σ p_i c_i over all who count."""
    weights = shares / shares.sum()
    common = torch.tensor(weights) @ offset.table.take(np.arange(len(shares)))
    return replace(offset, shared=common, scale=np.full(len(shares), 3.0), weights=weights)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["of its own", "a multiple", "everyone", "in balance"])  # of the second run's sums
@pytest.mark.parametrize("wide", [False, True])  # True: the first layer is not written at every step
@pytest.mark.parametrize("block", [1, 4, 100, None])  # None: one by one
def test_engine_next_controls_and_their_sum_are_worked_out_block_by_block(block: int, wide: bool, kind: str) -> None:
    task, local = wide_task() if wide else blob_task(7), SGD(lr=0.05, batch_size=4, steps=5, control="average")
    shares = np.linspace(0.1, 0.2, task.federation.num_clients)
    asked = [request(task, shares, local, offset=offset_of(task, seed)) for seed in (0, 1)]
    second = {
        "of its own": asked[1].offset,
        "a multiple": replace(present(asked[1].offset), scale=np.full(len(shares), 3.0), weights=shares * 5.0),
        "everyone": replace(present(asked[1].offset), weights=shares / shares.sum()),  # who did unequal work
        "in balance": in_balance(present(asked[1].offset), shares),
    }
    asked[1] = replace(asked[1], offset=second[kind])
    engine = Sequential() if block is None else Vectorised("cpu", block=block)
    answers: list[Any] = engine.answer([(task, one) for one in asked])
    for one, mine in zip(asked, answers, strict=True):
        alone = request(task, None, local, offset=replace(present(one.offset), scale=None))
        rows = answered(Sequential(), task, alone)
        held = present(one.offset).table.take(one.clients)
        scaled = rows.delta * torch.tensor(present(one.offset).scale)[:, None]
        assert torch.allclose(present(mine.next_rows), scaled - (present(one.offset).shared - held), rtol=0, atol=1e-11)
        assert torch.allclose(
            present(mine.next_sum), torch.tensor(present(one.offset).weights) @ scaled, rtol=0, atol=1e-11
        )
        assert torch.allclose(present(mine.reduced), torch.tensor(shares) @ rows.delta, rtol=0, atol=1e-11)


@pytest.mark.parametrize("wide", [False, True])  # True: the first layer is not written at every step
@pytest.mark.parametrize("block", [1, 4, 100, None])
def test_engine_a_next_control_that_is_not_finite_is_told_where_only_sums_come(block: int, wide: bool) -> None:
    task, local = wide_task() if wide else blob_task(7), SGD(lr=0.05, batch_size=4, steps=5, control="average")
    offset, clients = offset_of(task, 0), task.federation.num_clients
    scale = np.where(np.arange(clients) == 2, 2e305, 1.0)  # its change is finite, so many times as much is not
    asked = request(task, np.full(clients, 1.0), local, offset=replace(offset, scale=scale))
    asked = replace(asked, settings={**asked.settings, "lr": np.full(clients, 100.0)})
    engine = Sequential() if block is None else Vectorised("cpu", block=block)
    answer = answered(engine, task, asked)
    assert answer.next_rows.isfinite().all(1).tolist() == [client != 2 for client in range(clients)]
    assert answer.finite.tolist() == [client != 2 for client in range(clients)]


def test_golden_one_set_of_weights_as_a_multiple_of_another() -> None:
    weights = np.array([0.0, 2.0, -4.0])
    assert multiple(weights * 1.5, weights) == 1.5
    assert multiple(np.zeros(3), weights) == 0.0
    assert multiple(np.array([1.0, 3.0, -6.0]), weights) is None  # where one counts for nothing, the other does not
    assert multiple(np.array([0.0, 3.0, -6.0 + 1e-9]), weights) is None
    assert multiple(weights, np.zeros(3)) is None
    assert multiple(weights, None) is None
    assert multiple(None, weights) is None


def test_engine_a_block_does_not_feel_what_the_last_one_left_behind() -> None:
    task = blob_task(6)
    engine = Vectorised("cpu", block=2)
    rolling = SGD(lr=0.1, batch_size=5, epochs=2, momentum=0.9)
    first = answered(engine, task, request(task, None, rolling))
    engine.answer([(task, request(task, None))])
    again = answered(engine, task, request(task, None, rolling))
    assert torch.equal(first.delta, again.delta)


def test_contract_rows_go_to_the_memory_that_was_named() -> None:
    task = blob_task(4)
    room = torch.full((6, task.layout.size), torch.nan, dtype=torch.float64)
    answer = answered(Vectorised("cpu", block=3), task, request(task, None, into=room))
    assert answer.delta.data_ptr() == room.data_ptr()
    assert torch.isfinite(room[:4]).all()
    assert torch.isnan(room[4:]).all()


def test_golden_a_cohort_that_fits_is_tried_whole_and_split_over_the_cores() -> None:
    fits = candidates(100, 800 << 10, True, 2, 2)
    assert {Execution(True, 100, 1, 2), Execution(True, 50, 2, 1)} <= set(fits)
    assert all(way.block == evenly(100, way) for way in fits if way.stacked)  # what is measured is what will be run
    for rows, row_bytes in ((1000, 800 << 10), (10_000, 20 << 10)):  # too large; too many to need it
        most = max(way.block for way in candidates(rows, row_bytes, True, 2, 2))
        assert 32 << 20 <= most * row_bytes <= 64 << 20


@given(st.integers(1, 500), st.integers(1, 200), st.integers(1, 8))
def test_property_blocks_are_as_many_for_each_worker_and_no_larger_than_chosen(
    rows: int, block: int, workers: int
) -> None:
    size = evenly(rows, Execution(True, block, workers, 1))
    assert 1 <= size <= block
    fewest = -(-rows // block)
    assert -(-rows // size) <= -(-fewest // workers) * workers


def test_golden_a_hundred_rows_for_two_workers() -> None:
    assert evenly(100, Execution(True, 42, 2, 1)) == 25
    assert evenly(100, Execution(True, 84, 2, 1)) == 50
    assert evenly(100, Execution(True, 84, 1, 2)) == 50
    assert evenly(3, Execution(True, 50, 2, 1)) == 2


def test_golden_ten_rows_in_blocks_of_four_are_two_blocks_for_each_of_two_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []

    def noted(program: Dense, layout: Layout, jobs: Jobs, *rest: Any) -> BlockResult:
        sizes.append(len(jobs))
        return train_block(program, layout, jobs, *rest)

    monkeypatch.setattr("turnout.engine.vectorised.kernels.train_block", noted)
    task = blob_task(10)
    Vectorised("cpu", block=4, workers=2).answer([(task, request(task, np.full(10, 0.1)))])
    assert sorted(sizes) == [1, 3, 3, 3]
