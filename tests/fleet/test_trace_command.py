"""`turnout trace`: a picture of who was up, in the terminal and as a page."""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from tests.support.fleet_claims import trace_of
from turnout.cli.trace import trace_app
from turnout.cli.trace_view import as_text, bars, drawn, span, summary
from turnout.fleet import read_trace, write_trace


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(trace_app, [str(argument) for argument in arguments])


def pixels_of(png: bytes) -> NDArray[Any]:
    """Return the pixels of a PNG with one chunk of data and no filter."""
    columns, rows = struct.unpack(">II", png[16:24])
    (length,) = struct.unpack(">I", png[33:37])
    raw = np.frombuffer(zlib.decompress(png[41 : 41 + length]), dtype=np.uint8)
    return raw.reshape(rows, 1 + 3 * columns)[:, 1:].reshape(rows, columns, 3)


@pytest.fixture
def two_days(tmp_path: Path) -> Path:
    """Two clients for two days: both up in the first half of each day, one in the second."""
    day = 86_400.0
    rows = [(0, d * day, (d + 1) * day) for d in range(2)] + [(1, d * day, d * day + day / 2) for d in range(2)]
    write_trace(trace_of(*rows), tmp_path / "two.csv")
    return tmp_path / "two.csv"


def test_golden_bars_and_spans() -> None:
    assert bars(np.array([0.0, 0.5, 1.0]), 1.0) == "▁▅█"
    assert bars(np.zeros(2), 0.0) == "▁▁"
    assert [span(s) for s in (0, 1.5, 60, 90, 7260, 86_400, 180_000)] == [
        "0 s",
        "1.5 s",
        "1 min",
        "1 min 30 s",
        "2 h 1 min",
        "1 d",
        "2 d 2 h",
    ]


def test_contract_show_has_a_line_a_day(two_days: Path) -> None:
    result = call("show", two_days)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "two.csv   2 clients   2 d   4 intervals"
    assert lines[1].startswith("up 75.0% of the time on average")
    assert lines[5] == "day 1  " + "█" * 36 + "▅" * 36
    assert lines[6] == "day 2  " + "█" * 36 + "▅" * 36
    assert lines[7].split("  ")[0] == ""


def test_contract_json_has_the_same_figures(two_days: Path) -> None:
    facts = json.loads(call("show", two_days, "--json").output)
    assert facts == json.loads(json.dumps(summary(read_trace(two_days), "two.csv")))
    assert facts["client_share_up"] == {"mean": 0.75, "median": 0.75, "least": 0.5, "most": 1.0}
    assert np.allclose(facts["share_up"], ([1.0] * 18 + [0.5] * 18) * 2)


def test_contract_a_picture_is_a_page_of_its_own(two_days: Path, tmp_path: Path) -> None:
    result = call("show", two_days, "--out", tmp_path / "two.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "two.html").read_text()
    assert "<title>two.csv: 2 clients</title>" in page
    assert page.count("<svg ") == 2
    assert "share of clients up" in page
    assert "clients, most up first" in page


def test_golden_the_picture_is_white_where_a_client_is_down(two_days: Path) -> None:
    line, cells = drawn(read_trace(two_days))
    assert "100 %" in line
    encoded = cells.partition("base64,")[2].partition('"')[0]
    colours = pixels_of(base64.b64decode(encoded))
    assert colours.shape == (2, 600, 3)
    assert (colours[0] == (33, 113, 181)).all()  # always up, so it is on top
    up = np.r_[np.ones(150, bool), np.zeros(150, bool)]
    assert ((colours[1] == (33, 113, 181)).all(axis=1) == np.r_[up, up]).all()
    assert ((colours[1] == (255, 255, 255)).all(axis=1) != np.r_[up, up]).all()


def test_contract_a_trace_in_which_nobody_comes_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,start,end,state\n0,0,60,down\n")
    text = as_text(read_trace(path), "t.csv")
    assert "nobody is ever up" in text
    assert "▁" * 72 in text


def test_contract_convert_makes_what_show_reads(tmp_path: Path) -> None:
    source = tmp_path / "flash.json"
    source.write_text(json.dumps({"horizon_s": 900, "devices": [{"two_state": [[0, 1], [300, 0], [600, 1]]}]}))
    result = call("convert", source, "-o", tmp_path / "t.csv")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "t.csv").read_text() == "client,start,end,state\n0,0.0,600.0,down\n0,600.0,900.0,up\n"
    call("convert", source, "-o", tmp_path / "t.parquet")
    shown = [call("show", tmp_path / name).output.replace(name, "t") for name in ("t.csv", "t.parquet")]
    assert shown[0] == shown[1]
    assert "1 clients" in shown[0] or "1 client " in shown[0]
    call("convert", source, "-o", tmp_path / "kept.csv", "--keep-artefact")
    assert "0,0.0,300.0,up" in (tmp_path / "kept.csv").read_text()


def test_error_bad_input_is_one_line_and_exit_code_two(two_days: Path, tmp_path: Path) -> None:
    recording = tmp_path / "phones.json"
    recording.write_text("{}")
    for arguments, message in (
        (("show", tmp_path / "none.csv"), "There is no trace"),
        (("show", recording), "it is JSON"),
        (("show", recording), f"turnout trace convert {recording} -o phones.csv"),
        (("show", two_days, "--out", tmp_path / "x.txt"), "--out must end in .html"),
        (("show", two_days, "--out", tmp_path / "no" / "x.html"), "cannot be written"),
        (("convert", two_days, "-o", tmp_path / "x.csv"), "is not JSON"),
        (("convert", two_days, "-o", tmp_path / "x.csv", "--states", "five"), "--states must be one of two_state"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2
        assert message in result.output
        assert "Traceback" not in result.output
