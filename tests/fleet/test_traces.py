"""Traces: replayed exactly, read strictly, and made of published recordings."""

import json
import sys
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleet_claims import assert_replays, trace_of, view_of
from turnout.array_types import Ids
from turnout.errors import DataError
from turnout.fleet import Always, Recorded, Trace, read_recording, read_trace, write_trace
from turnout.fleet.recordings import between_absences, between_events, without_early_events
from turnout.fleet.traces import DOWN, EVALUATE, UP, Intervals

GOOD = "client,start,end,state\n0,0,5,up\n1,2,3,down\n0,6,7.5,evaluate\n"


def up_at(trace: Trace, seconds: float) -> Ids:
    """The clients that are available at a time."""
    return np.flatnonzero(trace.states_at(seconds) == UP)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A trace of up to eight clients, some of them without an interval, rows of clients mixed."""
    rows = []
    clients = draw(st.integers(1, 8))
    for client in range(clients):
        moments = sorted(draw(st.sets(st.integers(0, 400), max_size=12)))
        rows += [(client, a, b, draw(st.integers(0, 2))) for a, b in zip(moments[::2], moments[1::2], strict=False)]
    rows = rows or [(0, 1, 2, UP)]
    rows = sorted(rows, key=lambda row: (row[1], row[0]))  # by time: clients mixed
    client, start, end, state = (np.array(column) for column in zip(*rows, strict=True))  # type: ignore[assignment]
    return Trace.of(Intervals(client, start.astype(float), end.astype(float), state.astype(np.int8)), clients)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(trace=traces(), times=st.lists(st.integers(0, 45).map(lambda t: t * 10), min_size=1, max_size=8))
def test_property_who_is_up_is_what_the_trace_says(trace: Trace, times: list[int]) -> None:
    assert_replays(lambda t: Recorded(trace=t, round_seconds=10.0, repeat=False), trace, times)


@settings(max_examples=60)
@given(trace=traces(), seconds=st.floats(0, 450))
def test_property_one_search_for_all_is_a_look_at_each(trace: Trace, seconds: float) -> None:
    expected = np.full(trace.num_clients, DOWN)
    for client in range(trace.num_clients):
        for place in range(trace.offsets[client], trace.offsets[client + 1]):
            if trace.starts[place] <= seconds < trace.ends[place]:
                expected[client] = trace.states[place]
    assert np.array_equal(trace.states_at(seconds), expected)
    assert np.array_equal(up_at(trace, seconds), np.flatnonzero(expected == UP))


@settings(max_examples=40)
@given(trace=traces(), cuts=st.lists(st.floats(0, 400), min_size=2, max_size=9, unique=True))
def test_property_the_share_up_is_the_exact_mean(trace: Trace, cuts: list[float]) -> None:
    edges = np.array(sorted(cuts))
    if (np.diff(edges) < 1e-3).any():
        return
    is_up = trace.states == UP
    for place, (low, high) in enumerate(pairwise(edges)):
        inside = np.clip(np.minimum(trace.ends, high) - np.maximum(trace.starts, low), 0, None)[is_up].sum()
        assert trace.share_up(edges)[place] == pytest.approx(inside / (high - low) / trace.num_clients, abs=1e-9)


def test_golden_an_interval_has_its_start_and_not_its_end() -> None:
    trace = trace_of((0, 10, 20), (0, 20, 30), (1, 15, 16))
    assert [up_at(trace, t).tolist() for t in (9.999, 10, 15, 16, 20, 29.999, 30)] == [
        [],
        [0],
        [0, 1],
        [0],
        [0],
        [0],
        [],
    ]
    assert trace.seconds_up().tolist() == [20.0, 1.0]
    assert trace.length_seconds == 30.0


def test_golden_a_trace_starts_again_or_ends() -> None:
    trace = trace_of((0, 0, 10), (1, 10, 20))
    again = Recorded(trace=trace, round_seconds=10.0)
    once = Recorded(trace=trace, round_seconds=10.0, repeat=False)
    assert [again.up(view_of(2, t)).tolist() for t in range(1, 6)] == [[0], [1], [0], [1], [0]]
    assert [once.up(view_of(2, t)).tolist() for t in range(1, 6)] == [[0], [1], [], [], []]


def test_contract_the_clock_says_what_time_it_is() -> None:
    rule = Recorded(trace=trace_of((0, 0, 100), (1, 100, 300)))
    assert [rule.up(view_of(2, 7, seconds=s)).tolist() for s in (0.0, 99.9, 100.0, 299.0, 301.0)] == [
        [0],
        [0],
        [1],
        [1],
        [0],
    ]


def test_identity_a_trace_that_is_always_up_is_always() -> None:
    rule = Recorded(trace=trace_of(*((c, 0, 50) for c in range(6))), round_seconds=7.0)
    for round in range(1, 30):
        assert np.array_equal(rule.up(view_of(6, round)), Always().up(view_of(6, round)))


def test_contract_clients_draw_devices_once_and_all_devices_are_drawn() -> None:
    trace = trace_of((0, 0, 10), (1, 10, 20), (2, 20, 30))
    rule = Recorded(trace=trace, round_seconds=10.0, assign="drawn")
    ups = [rule.up(view_of(300, t)).tolist() for t in range(1, 7)]
    assert ups[:3] == ups[3:]
    assert sorted(chain(*ups[:3])) == list(range(300))
    assert all(60 < len(up) < 140 for up in ups)
    few = rule.up(view_of(300, 1, there=range(0, 300, 2)))
    assert few.tolist() == [client for client in ups[0] if client % 2 == 0]


def test_contract_a_client_without_an_interval_is_never_up() -> None:
    rule = Recorded(trace=trace_of((0, 0, 10)), round_seconds=1.0)
    assert all(rule.up(view_of(4, t)).tolist() == [0] for t in range(1, 20))


def written(folder: Path, text: Any, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_contract_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, GOOD))
    assert trace.offsets.tolist() == [0, 2, 3]
    assert trace.starts.tolist() == [0.0, 6.0, 2.0]
    assert trace.ends.tolist() == [5.0, 7.5, 3.0]
    assert trace.states.tolist() == [UP, EVALUATE, DOWN]
    for variant in (GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD.replace("client,", '"client",')):
        assert np.array_equal(read_trace(written(tmp_path, variant, "v.csv")).starts, trace.starts)


@settings(max_examples=25)
@given(trace=traces())
def test_property_a_trace_survives_being_written(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    write_trace(trace, path)
    again = read_trace(path, trace.num_clients)
    for name in ("offsets", "starts", "ends", "states"):
        assert np.array_equal(getattr(again, name), getattr(trace, name))


BAD = {
    "overlap": (GOOD + "0,7,9,up\n", r"line 5: client 0 has overlapping intervals: 7 is before the end"),
    "back": (GOOD + "0,5,6,up\n", r"line 5: time goes backwards for client 0: 5 comes after a later interval"),
    "ends first": (GOOD + "1,9,8,up\n", r"line 5: an interval must end after it starts; got 9 to 8"),
    "no length": (GOOD + "1,9,9,up\n", r"line 5: an interval must end after it starts; got 9 to 9"),
    "negative": (GOOD + "1,-8,9,up\n", r"line 5: times must not be negative; got -8 and 9"),
    "nan": (GOOD + "1,nan,9,up\n", r"line 5: start must be a number of seconds; got 'nan'"),
    "nothing": (GOOD + "1,,9,up\n", r"line 5: start and end must be finite; got nan and 9"),
    "infinite": (GOOD + "1,8,inf,up\n", r"line 5: start and end must be finite; got 8 and inf"),
    "unknown client": (GOOD + "7,8,9,up\n", r"line 5: there is no client 7; ids go from 0 to 2"),
    "negative client": (GOOD + "-1,8,9,up\n", r"line 5: there is no client -1"),
    "unknown state": (GOOD + "1,8,9,awake\n", r"line 5: the state must be one of down, evaluate, up; got 'awake'"),
    "no state": (GOOD + "1,8\n", r"line 5: the state must be one of .*; got nothing"),
    "word": (GOOD + "1,soon,9,up\n", r"line 5: start must be a number of seconds; got 'soon'"),
    "half a client": (GOOD + "1.5,8,9,up\n", r"line 5: client must be a whole number; got '1\.5'"),
    "blank line": (GOOD + "\n" + "1,8,9,up\n", r"line 5: client must be a whole number; got nothing"),
    "long line": (GOOD + "1,8,9,up,2\n", r"line 5: the line has too many entries"),
    "long first line": ("client,start,end,state\n1,8,9,up,2\n", r"line 2: the line has too many entries"),
    "no column": ("client,start,state\n1,8,up\n", r"line 1: the trace has no column end; it has client, start, state"),
    "no rows": ("client,start,end,state\n", r"the trace is empty: it has no interval"),
    "empty file": ("", r"the file is empty\. Its first line must be client,start,end,state"),
    "not text": (b"\xff\xfe\x00\x80", r"is not a text file in UTF-8"),
    "two wrong": (GOOD + "1,8,9,up\n1,1,2,up\n7,1,2,up\n", r"line 6: time goes backwards for client 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_error_a_bad_trace_is_one_message_with_the_line(case: str, tmp_path: Path) -> None:
    text, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        read_trace(written(tmp_path, text), num_clients=3)
    assert "trace.csv" in str(caught.value)


def test_error_an_id_that_is_a_mistake_does_not_fill_the_memory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 5: there is no client 99999999999"):
        read_trace(written(tmp_path, GOOD + "99999999999,8,9,up\n"))


def test_error_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no trace .*none\.csv\..*turnout trace convert"):
        read_trace(tmp_path / "none.csv")


@settings(max_examples=150)
@given(
    lines=st.lists(
        st.lists(st.sampled_from(["0", "1", "-1", "2.5", "1e400", "", "up", "down", "x", '"', "nan"]), max_size=6),
        max_size=5,
    )
)
def test_property_any_text_is_a_trace_or_one_message(
    lines: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text("client,start,end,state\n" + "".join(",".join(line) + "\n" for line in lines))
    said = ""
    try:
        assert read_trace(path).offsets[-1] == len(lines)
    except DataError as error:
        said = str(error)
    assert said == "" or str(path) in said


@settings(max_examples=15)
@given(trace=traces(), ending=st.sampled_from([".parquet", ".pq", ".PARQUET"]))
def test_property_a_trace_survives_parquet(trace: Trace, ending: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / f"t{ending}"
    write_trace(trace, path)
    assert path.read_bytes()[:4] == b"PAR1"
    again = read_trace(path, trace.num_clients)
    for name in ("offsets", "starts", "ends", "states"):
        assert np.array_equal(getattr(again, name), getattr(trace, name))


ROWS = {"client": [0, 0, 1], "start": [0, 5, 0], "end": [3, 7, 9], "state": ["up", "down", "up"]}
BAD_PARQUET = {
    "overlap": ({"start": [0, 1, 0]}, r"row 2: client 0 has overlapping intervals: 1 is before the end"),
    "back": ({"start": [2, 0, 0], "end": [3, 1, 9]}, r"row 2: time goes backwards for client 0"),
    "negative": ({"start": [0, 5, -1]}, r"row 3: times must not be negative; got -1 and 9"),
    "no start": ({"start": [0, None, 0]}, r"row 2: start and end must be finite; got nan and 7"),
    "no client": ({"client": [0, None, 1]}, r"row 2: client must be a whole number; got nothing"),
    "no client, as whole numbers": (
        {"client": pd.array([0, None, 1], dtype="Int64")},
        r"row 2: client must be a whole number; got nothing",
    ),
    "half a client": ({"client": [0, 0.5, 1]}, r"row 2: client must be a whole number; got 0\.5"),
    "unknown client": ({"client": [0, 0, 7]}, r"row 3: there is no client 7; ids go from 0 to 2"),
    "an id beyond all": ({"client": np.array([0, 0, 2**63 + 5], dtype=np.uint64)}, r"row 3: there is no client"),
    "a number for a state": ({"state": [2, 0, 2]}, r"row 1: the state must be one of down, evaluate, up; got 2"),
    "no state": ({"state": ["up", None, "up"]}, r"row 2: the state must be one of .*; got nothing"),
    "lists for states": ({"state": [["up"], ["up"], []]}, r"the column state must hold one of down, evaluate, up"),
    "texts for clients": ({"client": ["a", "b", "c"]}, r"the column client must hold numbers; got "),
    "dates for times": ({"start": pd.to_datetime([0, 5, 6])}, r"the column start must hold numbers; got datetime64"),
    "another name": ({"ends": [3, 7, 9], "end": None}, r"the trace has no column end; it has client, start, state, en"),
    "no rows": (None, r"the trace is empty: it has no interval"),
}


@pytest.mark.parametrize("case", BAD_PARQUET)
def test_error_a_bad_parquet_trace_is_one_message_with_the_row(case: str, tmp_path: Path) -> None:
    change, message = BAD_PARQUET[case]
    columns = {name: column for name, column in (ROWS | (change or {})).items() if column is not None}  # type: ignore[operator]
    pd.DataFrame(columns).iloc[: None if change else 0].to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message) as caught:
        read_trace(tmp_path / "bad.parquet", num_clients=3)
    assert "bad.parquet" in str(caught.value)


def test_error_a_file_that_is_not_parquet_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"t\.parquet cannot be read as Parquet: .*[^.]\. Write it again, or save it as CSV"
    ):
        read_trace(written(tmp_path, b"PAR1 and then something else", "t.parquet"))


def test_error_without_pyarrow_one_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    install = r'needs pyarrow\. Install it with `pip install "turnout\[parquet\]"`, or '
    with pytest.raises(DataError, match=f"writing Parquet {install}name the file .csv"):
        write_trace(trace_of((0, 0, 10)), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=f"reading Parquet {install}save the trace as CSV"):
        read_trace(written(tmp_path, b"PAR1", "t.parquet"))


def test_golden_events_become_intervals() -> None:
    events = [(0.0, UP), (300.0, DOWN), (500.0, UP), (500.0, DOWN), (700.0, UP), (800.0, UP), (1200.0, DOWN)]
    assert between_events(events, 1000.0) == [(0.0, 300.0, UP), (300.0, 700.0, DOWN), (700.0, 1000.0, UP)]
    assert between_events(without_early_events(events, 300.0), 1000.0) == [(0.0, 700.0, DOWN), (700.0, 1000.0, UP)]
    assert between_absences([(5, 5), (8, 4), (20, 10)], 25.0) == [
        (0.0, 5.0, UP),
        (5.0, 10, DOWN),
        (10, 12, DOWN),
        (12, 20.0, UP),
        (20.0, 25.0, DOWN),
    ]


@pytest.mark.data
def test_golden_flash_is_as_its_notes_say(data_folder: Path) -> None:
    path = data_folder / "availability-traces" / "flash_300_devices_6d.json"
    kept, trace = read_recording(path, keep_artefact=True), read_recording(path)
    share = kept.seconds_up() / kept.length_seconds
    assert trace.num_clients == 300
    assert trace.length_seconds == 518_400.0
    assert (round(share.mean(), 3), round(np.median(share), 3)) == (0.161, 0.129)
    assert (round(share.min(), 4), round(share.max(), 3)) == (0.0006, 0.906)
    assert len(up_at(kept, 0.0)) == 300  # the artefact
    assert len(up_at(kept, 299.0)) == 299
    assert len(up_at(trace, 0.0)) == len(up_at(trace, 300.0)) == len(up_at(kept, 300.0)) < 60
    three = read_recording(path, states="three_state_50")
    assert np.array_equal(up_at(three, 40_000.0), up_at(trace, 40_000.0))
    assert (three.states == EVALUATE).any()


@pytest.mark.data
def test_golden_fedscale_is_as_its_notes_say(data_folder: Path) -> None:
    path = data_folder / "availability-traces" / "fedscale_300_devices_48h_scaled.json"
    kept, trace = read_recording(path, keep_artefact=True), read_recording(path)
    assert round(1 - (kept.seconds_up() / 172_800).mean(), 3) == 0.786
    assert len(up_at(kept, 172_000.0)) == 300  # nothing is recorded so late
    assert trace.length_seconds == 164_924.0
    times = np.linspace(0.0, 164_000.0, 30)
    assert all(np.array_equal(up_at(kept, t), up_at(trace, t)) for t in times)


def test_error_a_recording_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not JSON"):
        read_recording(written(tmp_path, "client,start\n"))
    for text in (
        "[]",
        "{}",
        '{"horizon_s": 5, "devices": []}',
        '{"horizon_s": 5, "devices": [{"two_state": [[0, 9]]}]}',
    ):
        with pytest.raises(DataError, match=r"is not a recording of FLASH or FedScale"):
            read_recording(written(tmp_path, text))
    with pytest.raises(DataError, match=r"There is no recording"):
        read_recording(tmp_path / "none.json")


def test_contract_a_recording_of_two_phones(tmp_path: Path) -> None:
    flash = {"horizon_s": 900, "devices": [{"two_state": [[0, 1], [300, 0], [600, 1]]}, {"two_state": [[0, 1]]}]}
    trace = read_recording(written(tmp_path, json.dumps(flash)))
    assert [up_at(trace, t).tolist() for t in (0, 599, 600, 899, 900)] == [[1], [1], [0, 1], [0, 1], []]
