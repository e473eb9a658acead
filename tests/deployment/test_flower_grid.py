"""Parcels as the content of Flower messages, and back."""

import time
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'turnout[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from turnout.world.deployment.flower_grid import FlowerGrid, from_record, to_record
from turnout.world.deployment.parcel import BadParcelError, Parcel

pytestmark = pytest.mark.flower
PARCEL = Parcel(
    "train", {"round": 3, "loss": float("nan")}, {"delta": np.arange(4.0), "extra": np.zeros(2, np.float32)}
)


def test_identity_a_parcel_survives_the_way() -> None:
    back = from_record(to_record(PARCEL))
    assert (back.kind, back.whole("round")) == ("train", 3)
    assert np.isnan(back.number("loss"))
    for name, array in PARCEL.arrays.items():
        np.testing.assert_array_equal(back.arrays[name], array)
        assert back.arrays[name].dtype == array.dtype


def test_contract_an_array_that_many_messages_carry_is_encoded_once() -> None:
    shared: dict[int, Array] = {}
    one, other = (to_record(PARCEL, shared)["arrays"] for _ in range(2))
    assert one["delta"].data is other["delta"].data


def stranger(**changes: object) -> RecordDict:
    record = to_record(PARCEL)
    for name, value in changes.items():
        record[name] = value
    return record


@dataclass
class Listed:
    """What a SuperLink lists of a node."""

    public_key: bytes
    online_until: float
    node_id: int = 7
    last_activated_at: str = "then"


@dataclass
class Grid:
    """The nodes that a SuperLink lists."""

    listed: list[Listed]

    def get_nodes(self) -> list[Listed]:
        return self.listed


def test_golden_a_node_that_disappears_before_its_time_has_said_goodbye() -> None:
    now = time.time()
    grid = Grid([Listed(b"polite", now + 50), Listed(b"killed", now + 1), Listed(b"unknown", now + 50)])
    transport = FlowerGrid(grid, {b"polite": 0, b"killed": 1})
    assert sorted(transport.nodes()) == [0, 1]
    assert transport.departed() == set()
    first, grid.listed = grid.listed, []
    assert transport.nodes() == {}
    assert transport.departed() == {0}
    grid.listed = first
    assert sorted(transport.nodes()) == [0, 1]
    assert transport.departed() == set()


@pytest.mark.parametrize(
    "record",
    [
        RecordDict(),
        stranger(more=ConfigRecord({})),
        stranger(parcel=ConfigRecord({"kind": 3, "values": "{}"})),
        stranger(parcel=ConfigRecord({"kind": "train"})),
        stranger(parcel=ConfigRecord({"kind": "train", "values": "["})),
        stranger(arrays=ArrayRecord({"delta": Array(np.zeros(3))})),  # numpy's own format, which is never loaded
        stranger(arrays=ArrayRecord({"delta": Array("float32", (9,), "turnout.raw", b"1234")})),
    ],
)
def test_error_what_is_no_parcel_is_refused(record: RecordDict) -> None:
    with pytest.raises(BadParcelError):
        from_record(record)
