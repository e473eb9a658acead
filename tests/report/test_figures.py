"""Figures and tables as files: what they hold, and what is said where a PNG cannot be drawn."""

import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.report_journals import write
from turnout.analysis.compare import compare
from turnout.journal import load
from turnout.report import figures, write_all
from turnout.report.contents import contents
from turnout.report.load_studies import gather
from turnout.report.participation import USED_STATES
from turnout.report.svg import Axes, Line, line_figure, png, ticks

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def no_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for a machine with nothing that draws."""
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    monkeypatch.setattr(figures.shutil, "which", lambda name: None)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_png")
def test_contract_figures_are_svg_and_tables_are_csv_and_latex(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A <b>", "B & C"), client_accuracy=np.linspace(0, 1, 12))
    with pytest.warns(
        UserWarning, match="No PNG was written: that needs chromium on the path, or pip install cairosvg"
    ):
        written = write_all([folder], tmp_path / "report.html", tmp_path / "figures")
    names = {file.name for file in written.figures}
    assert {"curves-accuracy-round.svg", "curves-loss-bytes.svg", "accuracies.svg", "differences.svg"} <= names
    assert {"participation-1-a-b.svg", "comparison.csv", "comparison.tex", "costs.csv", "curves.csv"} <= names
    assert all(file.is_file() for file in written.figures)
    for file in written.figures:
        if file.suffix == ".svg":
            texts = [node.text for node in ElementTree.parse(file).iter(f"{SPACE}text")]
            assert texts, file
    assert "B \\& C" in (tmp_path / "figures" / "comparison.tex").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_png")
@pytest.mark.filterwarnings("ignore:No PNG was written")
def test_contract_the_csv_is_the_comparison_in_full(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    write_all([folder], tmp_path / "report.html", tmp_path / "figures")
    table = pd.read_csv(tmp_path / "figures" / "comparison.csv")
    rows = compare(load(folder)).rows
    assert table["arm"].tolist() == [row.arm for row in rows]
    assert table["final_mean"].tolist() == [row.final.mean for row in rows]
    difference = rows[1].difference
    assert difference is not None
    assert table["difference_low"].tolist()[1] == difference.low
    assert table["bytes_to_target"].tolist() == [row.to_target["bytes"].median for row in rows]


@pytest.mark.usefixtures("no_png")
@pytest.mark.filterwarnings("ignore:No PNG was written")
def test_contract_no_text_of_a_csv_begins_like_a_formula(tmp_path: Path) -> None:
    arms = ('=HYPERLINK("http://x")', "+1", "-1+2", "@SUM(A1)", "＝1", "FedAvg = 1")
    rejected = {1: "=cmd|' /C calc'!A0"}
    folder = write(tmp_path / "phones", arms=arms, rejected=rejected, metrics={"accuracy": 0.5, "=metric": -1.0})
    write_all([folder], tmp_path / "report.html", tmp_path / "figures")
    files = sorted((tmp_path / "figures").glob("*.csv"))
    assert len(files) >= 4
    for file in files:
        cells = pd.read_csv(file, dtype=str, keep_default_na=False).to_numpy().ravel().tolist()
        texts = [cell for cell in cells if not re.fullmatch(r"-?[\d.e+-]+|-?inf|", cell)]
        assert [cell for cell in texts if cell[0] in "=+-@＝"] == []
    curves = pd.read_csv(tmp_path / "figures" / "curves.csv")
    assert {f"'{arm}" for arm in arms[:-1]} | {arms[-1]} == set(curves["arm"])
    assert "'=metric" in set(curves["metric"])
    assert (curves["mean"] == -1.0).any()  # a number stays one


def test_golden_a_line_goes_from_corner_to_corner() -> None:
    line = Line(name="A", place=1, x=np.array([0.0, 10.0]), y=np.array([1.0, 3.0]))
    text = line_figure([line], Axes(x_label="rounds", y_label="loss"))
    (points,) = re.findall(r'<polyline points="([^"]*)".*#d55e00', text)
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in points.split())
    assert (x0, x1) == (64.0, 616.0)
    assert y0 > y1


def test_golden_a_gap_splits_the_line() -> None:
    line = Line(name="A", place=0, x=np.arange(5.0), y=np.array([1.0, 2.0, np.nan, 2.0, 1.0]))
    assert line_figure([line], Axes(x_label="x", y_label="y")).count("<polyline") == 2


def test_golden_ticks_are_round_numbers() -> None:
    assert ticks(0, 20, 7) == [0, 5, 10, 15, 20]
    assert ticks(-0.3, 0.2, 5) == pytest.approx([-0.3, -0.2, -0.1, 0.0, 0.1, 0.2])


def test_golden_a_png_of_two_pixels() -> None:
    file = png(np.array([[[255, 0, 0], [0, 0, 255]]], dtype=np.uint8))
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", file[16:24]) == (2, 1)
    (length,) = struct.unpack(">I", file[33:37])
    assert zlib.decompress(file[41 : 41 + length]) == b"\x00\xff\x00\x00\x00\x00\xff"


def test_contract_cells_of_many_clients_hold_the_share_that_answered(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=1, rounds=30, num_clients=600, cohort=40)
    run = contents(gather([folder])).first_runs["A"]
    order = np.arange(600)
    cells = figures.binned(run, order)
    assert cells.shape == (120, 30)
    answered = np.isin(figures.states(run), USED_STATES)
    np.testing.assert_allclose(cells, answered.reshape(120, 5, 30).mean(axis=1))


def test_golden_a_line_that_is_flat_but_for_rounding_gets_few_ticks() -> None:
    line = Line(name="A", place=0, x=np.array([0.0, 1.0]), y=np.array([0.1 + 0.2, 0.3]))
    assert line_figure([line], Axes(x_label="x", y_label="y")).count("<text") < 30
