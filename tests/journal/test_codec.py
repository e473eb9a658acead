from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.journal_records import record
from turnout.errors import JournalError
from turnout.journal.codec import (
    BITMAP,
    DOWN,
    EVERYONE,
    UP,
    ZIPPED,
    decode_clients,
    decode_floats,
    decode_ids,
    encode_clients,
    encode_floats,
    encode_ids,
)
from turnout.progress import Progress
from turnout.requests import Outcome


@st.composite
def populations(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Any share of a federation of any size, in one lump or spread out."""
    num_clients = draw(st.integers(1, 3000))
    share = draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        return np.flatnonzero(rng.random(num_clients) < share), num_clients
    start = draw(st.integers(0, num_clients - 1))
    return np.arange(start, min(num_clients, start + int(share * num_clients))), num_clients


@given(populations())
def test_property_who_was_up_survives_the_round_trip(case: tuple[np.ndarray, int]) -> None:
    ids, num_clients = case
    back = decode_ids(encode_ids(ids, num_clients), num_clients)
    assert back.dtype == np.int64
    np.testing.assert_array_equal(back, ids)


@given(populations())
def test_property_a_set_never_takes_more_than_its_bitmap(case: tuple[np.ndarray, int]) -> None:
    ids, num_clients = case
    assert len(encode_ids(ids, num_clients)) <= 1 + (num_clients + 7) // 8


@given(st.lists(st.integers(0, 2**40), unique=True, max_size=30))
def test_property_ids_of_any_size_survive_the_round_trip_of_clients(ids: list[int]) -> None:
    asked = sorted(ids)
    rng = np.random.default_rng(len(ids))
    clients = np.array(asked, dtype=np.int64)
    progress = Progress(
        clients=clients,
        steps=rng.integers(0, 8, len(ids)),
        seconds=rng.random(len(ids)),
        cut_off=rng.random(len(ids)) < 0.5,
    )
    facts: dict[str, Any] = {
        "coefficients": rng.normal(size=len(ids)),
        "losses": rng.random(len(ids)),
        "work": rng.random(len(ids)),
        "progress": progress,
    }
    sent = record(1, asked=asked, **facts)
    blob = encode_clients(sent)
    if not ids:
        assert blob is None
        return
    assert blob is not None
    back = decode_clients(blob, 2**40 + 1, len(ids))
    np.testing.assert_array_equal(back["client"], sent.asked)
    np.testing.assert_array_equal(back["multiplicity"], sent.multiplicity)
    np.testing.assert_array_equal(back["asked_steps"], sent.asked_steps)
    np.testing.assert_array_equal(back["local_steps"], sent.local_steps)
    np.testing.assert_array_equal(back["answered"], np.isin(sent.asked, sent.answered))
    np.testing.assert_array_equal(back["coefficient"], sent.coefficients)
    np.testing.assert_array_equal(back["work"], sent.work)
    np.testing.assert_array_equal(back["loss"], sent.losses)
    np.testing.assert_array_equal(back["progress"], progress.steps)
    np.testing.assert_array_equal(back["seconds"], progress.seconds)
    np.testing.assert_array_equal(back["cut_off"], progress.cut_off)


def test_golden_two_clients_are_packed_column_by_column() -> None:
    blob = encode_clients(record(1, asked=(1, 3)))
    assert blob is not None
    numbers = bytes([1, 3, 1, 2, 7, 7, 7, 0, 7, 0, 0, 0])  # ids, draws, asked steps, local steps, progress, cut off
    floats = np.array([0.5, 0.0, 7.0, 0.0, 1.25, np.nan, np.nan, np.nan]).tobytes()  # c, work, loss, seconds
    assert blob == bytes([0]) + numbers + bytes([Outcome.COMPLETE, Outcome.LOST]) + floats


def test_golden_everyone_up_is_one_byte() -> None:
    assert encode_ids(np.arange(1_000_000), 1_000_000) == bytes([EVERYONE])


def test_golden_a_few_that_are_up_are_written_as_gaps() -> None:
    assert encode_ids(np.array([2, 3, 10]), 100) == bytes([UP, 2, 0, 6])


def test_golden_a_few_that_are_down_are_written_as_gaps() -> None:
    up = np.setdiff1d(np.arange(100), [2, 3, 10])
    assert encode_ids(up, 100) == bytes([DOWN, 2, 0, 6])


def test_golden_half_of_them_up_is_a_bitmap() -> None:
    assert encode_ids(np.array([0, 2, 4, 6, 8]), 10) == bytes([BITMAP, 0b10101010, 0b10000000])


def test_golden_wide_gaps_take_two_bytes_each() -> None:
    assert encode_ids(np.array([300, 1000]), 10_000) == bytes([UP | 1 << 2]) + np.array([300, 699], "<u2").tobytes()


def test_contract_a_million_clients_cost_little() -> None:
    rng = np.random.default_rng(0)
    assert len(encode_ids(np.flatnonzero(rng.random(1_000_000) < 0.001), 1_000_000)) < 2500
    assert len(encode_ids(np.arange(0, 500_000), 1_000_000)) < 1000


def test_contract_a_body_that_does_not_shrink_is_not_compressed() -> None:
    noise = np.frombuffer(np.random.default_rng(0).bytes(8000), dtype="<u8").astype(np.float64)
    even = np.zeros(1000)
    for values in (noise, even):
        blob = encode_floats(values)
        assert blob is not None
        np.testing.assert_array_equal(decode_floats(blob, len(values)), values)
    zeros, few = encode_floats(even), encode_floats(np.zeros(3))
    assert zeros is not None
    assert few is not None
    assert zeros[0] & ZIPPED
    assert not few[0] & ZIPPED
    assert len(few) == 1 + 3 * 8


@pytest.mark.parametrize("ids", [[3, 1], [1, 1], [-1, 2], [1, 10]])
def test_error_ids_out_of_order_or_range_are_refused(ids: list[int]) -> None:
    with pytest.raises(JournalError, match=r"ascending order, each once, from 0 to 9; got .* Sort them"):
        encode_ids(np.array(ids), 10)
