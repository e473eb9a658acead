"""Write figures and tables as files: SVG, PNG if a converter is installed, CSV and LaTeX."""

import os
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from turnout.array_types import Floats
from turnout.report import curves, svg
from turnout.report.changes import changes_figure
from turnout.report.contents import RARE, Contents, Event, difference_label, ranked_charts
from turnout.report.participation import NOT_ASKED, STATES, USED_STATES, Participation

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ("--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking")
ZOOM = 2  # PNG pixels per SVG pixel
MOST_CLIENTS, MOST_ROUNDS = 300, 500  # on a map with one cell per client and round
ROWS, COLUMNS = 120, 200  # cells of a larger map
CELLS = ("#eceef1", "#c3ccd6", "#0072b2", "#6cbcec", "#cc79a7", "#d55e00", "#5c1f00", "#f0c24b")  # by state
RAMP = ("#eceef1", "#004a78")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # how a formula can begin in a spreadsheet
NO_PNG = "No PNG was written: that needs chromium on the path, or pip install cairosvg. SVG files were written."


def write_figures(contents: Contents, folder: Path) -> list[Path]:
    """Write every figure and table, and return the files; warn if PNG files cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in drawings(contents):
        written.append(folder / f"{name}.svg")
        written[-1].write_text(text, encoding="utf-8")
    written += _write_pngs(list(written))

    for table in contents.tables:
        csv, tex = folder / f"{table.name}.csv", folder / f"{table.name}.tex"
        no_formulas(table.raw).to_csv(csv, index=False)
        tex.write_text(table.latex(), encoding="utf-8")
        written += [csv, tex]
    long = folder / "curves.csv"
    no_formulas(_long(contents.curves)).to_csv(long, index=False)
    return [*written, long]


def drawings(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield (name, SVG) of each figure."""
    places = {arm.name: place for place, arm in enumerate(contents.gathered.arms)}
    axes = curves.used_axes(contents.curves)
    rare = [event for event in contents.events if len(event.rounds) <= RARE]
    for metric, by_arm in contents.curves.items():
        if metric in curves.COUNTS:  # the maps show more
            continue
        for axis in axes if metric in ("loss", "accuracy") else axes[:1]:
            name = f"curves-{_slug(metric)}-{_slug(axis.removeprefix('cumulative_'))}"
            yield name, _curves(metric, by_arm, axis, places, _marks(rare, by_arm, axis, places))
    yield from _differences(contents, places)
    if contents.objectives:
        yield (
            "objective",
            svg.cause_figure([(each.arm, each.causes, each.total_variation) for each in contents.objectives]),
        )
    if contents.around_changes:
        yield "changes", changes_figure(contents.around_changes, places)
    for chart in ranked_charts(contents):
        if chart.by_arm:
            lines = [_ranked(arm, rows, places[arm]) for arm, rows in chart.by_arm.items()]
            labels = svg.Axes(x_label=chart.x_label, y_label=chart.y_label, x_percent=True, y_percent=chart.is_share)
            yield chart.name, svg.line_figure(lines, labels)
    for at, (arm, run) in enumerate(contents.first_runs.items()):
        if run.num_clients and len(run.rounds):
            yield f"participation-{at + 1}-{_slug(arm)}", participation_map(run)


def _marks(events: Sequence[Event], by_arm: dict[str, curves.Curve], axis: str, places: dict[str, int]) -> list[float]:
    """Return where events lie on an axis: at their round, or at its mean cost over the arms in which they happened."""
    marks: set[float] = set()
    for event in events:
        of_event = [curve for arm, curve in by_arm.items() if places[arm] in event.arms]
        for round in event.rounds:
            costs = [curve.costs[axis][curve.round >= round][:1] for curve in of_event] if axis != "round" else []
            spent = np.concatenate(costs) if costs else np.zeros(0)
            marks |= {float(round)} if axis == "round" else {float(spent.mean())} if len(spent) else set()
    return sorted(marks)


def _curves(
    metric: str, by_arm: dict[str, curves.Curve], axis: str, places: dict[str, int], marks: Sequence[float]
) -> str:
    lines = []
    for arm, curve in by_arm.items():
        x = curve.round.astype(np.float64) if axis == "round" else curve.costs[axis]
        band = (curve.mean - curve.std, curve.mean + curve.std) if curve.seeds.max() > 1 else (None, None)
        lines.append(svg.Line(name=arm, place=places[arm], x=x, y=curve.mean, low=band[0], high=band[1]))
    percent = metric in curves.SHARES
    labels = svg.Axes(x_label=curves.AXES[axis], y_label=curves.label_of(metric), y_percent=percent, marks=marks)
    return svg.line_figure(lines, labels)


def _differences(contents: Contents, places: dict[str, int]) -> Iterator[tuple[str, str]]:
    comparison = contents.gathered.comparison
    if comparison is None:
        return
    factor = 100 if comparison.in_points else 1
    rows: list[svg.Interval] = []
    for row in comparison.rows:
        if (d := row.difference) is not None:
            low, high = (None if end is None else factor * end for end in (d.low, d.high))
            rows.append((row.arm, places[row.arm], factor * d.mean, low, high))
    if rows:
        yield "differences", svg.interval_figure(rows, difference_label(comparison))


def _ranked(arm: str, rows: Floats, place: int) -> svg.Line:
    band = (rows.min(0), rows.max(0)) if len(rows) > 1 else (None, None)
    x = np.linspace(0, 1, rows.shape[1])
    return svg.Line(name=arm, place=place, x=x, y=rows.mean(0), low=band[0], high=band[1])


def participation_map(run: Participation) -> str:
    """Return the map of one run, clients with the most updates used on top; a large map is binned."""
    order = np.lexsort((np.arange(run.num_clients), -run.times_answered))
    labels = ("rounds", "clients, most updates used on top", int(run.rounds[-1]))
    if run.num_clients <= MOST_CLIENTS and len(run.rounds) <= MOST_ROUNDS:
        table = states(run)
        pixels = np.array([_rgb(colour) for colour in CELLS], dtype=np.uint8)[table[order]]
        return svg.cell_figure(pixels, [(STATES[state], CELLS[state]) for state in np.unique(table)], labels)
    shares = binned(run, order)
    most = float(shares.max())
    low, high = (np.array(_rgb(colour), dtype=np.float64) for colour in RAMP)
    part = (shares / most if most > 0 else shares)[:, :, None]
    pixels = np.rint(low + (high - low) * part).astype(np.uint8)
    legend = [("no update used", RAMP[0]), (f"updates used in {100 * most:.3g} % of the clients and rounds", RAMP[1])]
    return svg.cell_figure(pixels, legend, labels)


def states(run: Participation) -> NDArray[np.uint8]:
    """Return the state of every client (rows) in every round (columns)."""
    table = np.zeros((run.num_clients, len(run.rounds)), dtype=np.uint8)
    for column, up in enumerate(run.up):
        table[up, column] = NOT_ASKED
    table[run.clients, np.repeat(np.arange(len(run.rounds)), run.counts)] = run.states
    return table


def binned(run: Participation, order: NDArray[np.int64]) -> Floats:
    """Return, by cell, the share of its clients and rounds in which an update was used."""
    rows, columns = min(run.num_clients, ROWS), min(len(run.rounds), COLUMNS)
    place = np.empty(run.num_clients, dtype=np.int64)
    place[order] = np.arange(run.num_clients) * rows // run.num_clients
    column = np.arange(len(run.rounds)) * columns // len(run.rounds)
    is_used = np.isin(run.states, USED_STATES)
    at = place[run.clients] * columns + np.repeat(column, run.counts)
    counts = np.bincount(at[is_used], minlength=rows * columns).reshape(rows, columns)
    cells = np.outer(np.bincount(place, minlength=rows), np.bincount(column, minlength=columns))
    shares: Floats = counts / np.maximum(cells, 1)
    return shares


def _long(by_metric: dict[str, dict[str, curves.Curve]]) -> pd.DataFrame:
    """Return every point of every curve, one per row."""
    parts = [
        pd.DataFrame(
            {
                "arm": arm,
                "metric": metric,
                "round": curve.round,
                **curve.costs,
                "seeds": curve.seeds,
                "mean": curve.mean,
                "std": curve.std,
                "min": curve.low,
                "max": curve.high,
            }
        )
        for metric, by_arm in by_metric.items()
        for arm, curve in by_arm.items()
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["arm", "metric", "round"])


def no_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with an apostrophe before every text that a spreadsheet would read as a formula."""
    return frame.map(lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell)


def _write_pngs(svg_files: Sequence[Path]) -> list[Path]:
    convert = _png_converter()
    if convert is None:
        warnings.warn(NO_PNG, stacklevel=3)
        return []
    pngs = [file.with_suffix(".png") for file in svg_files]
    return [png for file, png in zip(svg_files, pngs, strict=True) if convert(file, png)]


def _png_converter() -> Callable[[Path, Path], bool] | None:
    """Return a function that converts an SVG file into a PNG file; None if no converter is installed."""
    if find_spec("cairosvg") is not None:
        return _by_cairo
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return None if browser is None else partial(_by_browser, browser)


def _by_cairo(file: Path, png: Path) -> bool:
    import_module("cairosvg").svg2png(url=str(file), write_to=str(png), scale=ZOOM)
    return png.is_file()


def _by_browser(browser: str, file: Path, png: Path) -> bool:
    drawing = ElementTree.parse(file).getroot()
    rootless = () if os.name == "nt" or os.geteuid() else ("--no-sandbox",)
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *QUIET, *rootless, f"--user-data-dir={profile}", f"--force-device-scale-factor={ZOOM}"]
        command += [
            f"--window-size={drawing.attrib['width']},{drawing.attrib['height']}",
            f"--screenshot={png.absolute()}",
            file.absolute().as_uri(),
        ]
        subprocess.run(command, check=False, capture_output=True, timeout=60)
    return png.is_file()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "x"


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
