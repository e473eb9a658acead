"""Mini-batches: every epoch sees every sample once, and no client's batches depend on another's."""

from collections.abc import Callable
from itertools import permutations as orders
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import int64, uint64
from numpy.typing import NDArray
from scipy import stats

import turnout.local.batches as batches
from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.local.batches import Batches, draw_batches, permutations, samples_used, steps_per_epoch
from turnout.protocols import Batching
from turnout.streams import Streams, unit, words

MODES = ("shuffled", "replaced", "full")
unhurried = settings(max_examples=60)


@st.composite
def blocks(draw: st.DrawFn, least_steps: int = 0) -> tuple[NDArray[Any], Ids, Ids]:
    """Return the keys, sizes and steps of a few clients."""
    rows = draw(st.integers(1, 6))

    def numbers(low: int, high: int) -> Ids:
        return np.array(draw(st.lists(st.integers(low, high), min_size=rows, max_size=rows)))

    keys = Streams(draw(st.integers(0, 99))).keys("batches", draw(st.integers(0, 9)), numbers(0, 10**6))
    return keys, numbers(1, 13), numbers(least_steps, 17)


batch_sizes = st.integers(1, 8)
modes = st.sampled_from(MODES)


def one_client(key: uint64, size: int64, steps: int64, batch_size: int | None, mode: str) -> list[list[int]]:
    """Return a client's batches as lists, the plain way: one epoch, one cut, one draw after another."""
    if mode == "full" or batch_size is None:
        return [list(range(size))] * steps
    if mode == "replaced":
        draws = unit(words(np.array([key]), steps * batch_size))[0].reshape(steps, batch_size)  # type: ignore[arg-type]
        return [[int(u * size) for u in row] for row in draws]
    stream = [int(word) >> 24 for word in words(np.array([key]), (steps + 1) * size)[0]]  # type: ignore[arg-type]
    cuts: list[Any] = []
    while len(cuts) < steps:
        epoch, stream = stream[:size], stream[size:]
        order = sorted(range(size), key=epoch.__getitem__)
        cuts += [order[at : at + batch_size] for at in range(0, size, batch_size)]
    return cuts[:steps]


def as_lists(drawn: Batches, row: Any, steps: Any) -> list[list[int]]:
    return [drawn.positions[row, k, : drawn.counts[row, k]].tolist() for k in range(steps)]


@unhurried
@given(block=blocks(), batch_size=st.none() | batch_sizes, mode=modes)
def test_identity_a_block_is_its_clients_one_at_a_time(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int | None, mode: Batching
) -> None:
    drawn = draw_batches(*block, batch_size, mode)
    for row, (key, size, steps) in enumerate(zip(*block, strict=True)):
        assert as_lists(drawn, row, steps) == one_client(key, size, steps, batch_size, mode)


@unhurried
@given(data=st.data(), block=blocks(), batch_size=batch_sizes, mode=modes)
def test_property_any_part_of_a_block_draws_the_same(
    data: st.DataObject, block: tuple[NDArray[Any], Ids, Ids], batch_size: int, mode: Batching
) -> None:
    keys, sizes, steps = block
    chosen = np.array(data.draw(st.lists(st.integers(0, len(keys) - 1), min_size=1, max_size=6)))
    whole = draw_batches(keys, sizes, steps, batch_size, mode)
    part = draw_batches(keys[chosen], sizes[chosen], steps[chosen], batch_size, mode)
    for row, original in enumerate(chosen):
        assert as_lists(part, row, steps[original]) == as_lists(whole, original, steps[original])


@unhurried
@given(block=blocks(least_steps=1), batch_size=batch_sizes, mode=modes)
def test_property_a_client_that_stops_early_has_seen_the_same_batches(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int, mode: Batching
) -> None:
    keys, sizes, steps = block
    fewer = steps // 2
    long, short = (draw_batches(keys, sizes, s, batch_size, mode) for s in (steps, fewer))
    for row, done in enumerate(fewer):
        assert as_lists(short, row, done) == as_lists(long, row, done)


@unhurried
@given(block=blocks(), batch_size=batch_sizes)
def test_property_every_epoch_covers_every_sample_once(block: tuple[NDArray[Any], Ids, Ids], batch_size: int) -> None:
    keys, sizes, steps = block
    per_epoch = steps_per_epoch(sizes, batch_size)
    drawn = draw_batches(keys, sizes, steps, batch_size, "shuffled")
    for row, (size, turn) in enumerate(zip(sizes, per_epoch, strict=True)):
        cut = as_lists(drawn, row, steps[row])
        for start in range(0, steps[row], turn):
            seen = [place for batch in cut[start : start + turn] for place in batch]
            assert len(set(seen)) == len(seen)
            if start + turn <= steps[row]:
                assert sorted(seen) == list(range(size))


@unhurried
@given(block=blocks(), batch_size=batch_sizes)
def test_property_only_the_last_batch_of_an_epoch_is_smaller(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int
) -> None:
    keys, sizes, steps = block
    counts = draw_batches(keys, sizes, steps, batch_size, "shuffled").counts
    for size, done, row in zip(sizes, steps, counts, strict=True):
        full, rest = divmod(int(size), batch_size)
        epoch = [batch_size] * full + ([rest] if rest else [])
        assert row.tolist() == (epoch * (int(done) + 1))[:done] + [0] * (len(row) - done)


@unhurried
@given(block=blocks(), batch_size=st.none() | batch_sizes, mode=modes)
def test_property_samples_used_is_the_sum_of_counts(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int | None, mode: Batching
) -> None:
    keys, sizes, steps = block
    drawn = draw_batches(keys, sizes, steps, batch_size, mode)
    assert samples_used(sizes, steps, batch_size, mode).tolist() == drawn.counts.sum(1).tolist()


@unhurried
@given(block=blocks(), batch_size=st.none() | batch_sizes, mode=modes)
def test_property_shapes_fit_and_every_position_can_be_looked_up(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: Any, mode: Batching
) -> None:
    keys, sizes, steps = block
    drawn = draw_batches(keys, sizes, steps, batch_size, mode)
    width = sizes.max() if batch_size is None or mode == "full" else batch_size
    assert drawn.positions.shape == (len(keys), steps.max(), width)
    assert drawn.counts.shape == (len(keys), steps.max())
    assert (drawn.positions >= 0).all()
    assert (drawn.positions < sizes[:, None, None]).all()  # padding too: an engine may gather it
    assert np.array_equal(drawn.counts > 0, np.arange(steps.max())[None, :] < steps[:, None])


@unhurried
@given(block=blocks(least_steps=1), batch_size=st.none() | batch_sizes, mode=modes)
def test_property_is_full_says_whether_any_active_batch_is_padded(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int | None, mode: Batching
) -> None:
    keys, sizes, steps = block
    drawn = draw_batches(keys, sizes, steps, batch_size, mode)
    active = drawn.counts > 0
    assert drawn.is_full == (drawn.counts[active] == drawn.positions.shape[2]).all()


@unhurried
@given(block=blocks())
def test_identity_no_batch_size_is_full_batches(block: tuple[NDArray[Any], Ids, Ids]) -> None:
    keys, sizes, steps = block
    full = draw_batches(keys, sizes, steps, 3, "full")
    for mode in MODES:
        drawn = draw_batches(keys, sizes, steps, None, mode)  # type: ignore[arg-type]
        assert np.array_equal(drawn.positions, full.positions)
        assert np.array_equal(drawn.counts, full.counts)


@unhurried
@given(block=blocks(), batch_size=batch_sizes, mode=modes)
def test_property_inputs_are_left_as_they_were(
    block: tuple[NDArray[Any], Ids, Ids], batch_size: int, mode: Batching
) -> None:
    before = [values.copy() for values in block]
    draw_batches(*block, batch_size, mode)
    assert all(np.array_equal(a, b) for a, b in zip(before, block, strict=True))


@unhurried
@given(block=blocks())
def test_property_permutations_lie_end_to_end(block: tuple[NDArray[Any], Ids, Ids]) -> None:
    keys, sizes, epochs = block
    flat = permutations(keys, sizes, epochs)
    assert len(flat) == (sizes * epochs).sum()
    pieces = np.split(flat, np.cumsum(np.repeat(sizes, epochs))[:-1]) if len(flat) else []
    assert [sorted(piece) for piece in pieces] == [list(range(size)) for size in np.repeat(sizes, epochs)]


def test_property_steps_beyond_an_epoch_reshuffle() -> None:
    keys = Streams(1).keys("batches", 1, np.arange(50))
    drawn = draw_batches(keys, np.full(50, 20), np.full(50, 3), 20, "shuffled").positions
    first, second, third = drawn[:, 0], drawn[:, 1], drawn[:, 2]
    assert not (first == second).all(1).any()
    assert not (second == third).all(1).any()
    assert len(np.unique(drawn.reshape(150, 20), axis=0)) == 150  # nor do two clients share an order


@pytest.mark.parametrize("size", [2, 3, 4])
def test_property_every_order_is_as_likely(size: int) -> None:
    clients = 400 * len(list(orders(range(size))))
    keys = Streams(1).keys("batches", 1, np.arange(clients))
    drawn = draw_batches(keys, np.full(clients, size), np.full(clients, 2), size, "shuffled").positions
    for epoch in (0, 1):
        _, counts = np.unique(drawn[:, epoch], axis=0, return_counts=True)
        assert len(counts) == len(list(orders(range(size))))
        assert stats.chisquare(counts).pvalue > 1e-4


def test_property_replaced_draws_are_even_and_repeat() -> None:
    keys = Streams(1).keys("batches", 1, np.arange(300))
    drawn = draw_batches(keys, np.full(300, 7), np.full(300, 4), 10, "replaced")
    assert stats.chisquare(np.bincount(drawn.positions.ravel(), minlength=7)).pvalue > 1e-4
    assert all(len(set(batch)) < 10 for batch in drawn.positions.reshape(-1, 10).tolist())  # 10 draws of 7 samples
    assert drawn.is_full
    assert (drawn.counts == 10).all()


def test_golden_three_clients_by_hand() -> None:
    sizes, steps = np.array([5, 2, 4]), np.array([4, 1, 0])
    assert steps_per_epoch(sizes, 2).tolist() == [3, 1, 2]
    drawn = draw_batches(Streams(0).keys("batches", 1, np.arange(3)), sizes, steps, 2, "shuffled")
    assert drawn.counts.tolist() == [[2, 2, 1, 2], [2, 0, 0, 0], [0, 0, 0, 0]]
    assert samples_used(sizes, steps, 2, "shuffled").tolist() == [7, 2, 0]
    assert not drawn.is_full
    assert as_lists(drawn, 0, 4) == [[0, 2], [1, 4], [3], [3, 2]]  # frozen
    assert sorted(drawn.positions[1, 0].tolist()) == [0, 1]


def test_golden_steps_per_epoch_rounds_up() -> None:
    assert steps_per_epoch(np.array([1, 10, 11, 20]), 10).tolist() == [1, 1, 2, 2]
    assert steps_per_epoch(np.array([1, 10, 11, 20]), None).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_golden_nobody_and_nothing_to_do_give_empty_batches(mode: Batching) -> None:
    none = np.zeros(0, dtype=np.int64)
    empty = draw_batches(np.zeros(0, dtype=np.uint64), none, none, 4, mode)
    assert empty.positions.shape[:2] == empty.counts.shape == (0, 0)
    idle = draw_batches(Streams(0).keys("batches", 1, np.arange(2)), np.array([3, 5]), np.zeros(2, dtype=int), 4, mode)
    assert idle.positions.shape[:2] == idle.counts.shape == (2, 0)


def test_property_ties_are_broken_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse: Callable[..., Any] = lambda words_: mix(words_) & np.uint64(0b11 << 62)  # noqa: E731
    mix = batches.mix  # type: ignore[attr-defined]
    monkeypatch.setattr(batches, "mix", coarse)  # two bits a draw: hundreds of ties
    keys, sizes, epochs = Streams(1).keys("batches", 1, np.arange(3)), np.array([300, 1, 200]), np.array([2, 1, 1])
    flat = permutations(keys, sizes, epochs)
    ranks = [
        coarse(keys[row] + np.arange(1, n + 1, dtype=np.uint64) * batches.GAMMA)  # type: ignore[attr-defined, operator]
        for row, n in enumerate((600, 1, 200))
    ]
    stable = [np.argsort(part, kind="stable") for part in (ranks[0][:300], ranks[0][300:], ranks[1], ranks[2])]
    assert np.array_equal(flat, np.concatenate(stable))


@pytest.mark.parametrize(("mode", "steps", "size"), [("shuffled", 10**6, 10**6), ("replaced", 10**6, 10**6)])
def test_error_more_batches_than_memory_holds_are_one_message(mode: Batching, steps: int, size: int) -> None:
    with pytest.raises(ConfigError, match=r"1,000,000 steps of 1,000,000 samples needs about .* Lower local\.steps"):
        draw_batches(np.ones(2, dtype=np.uint64), np.array([50, 60]), np.array([steps, steps]), size, mode)
