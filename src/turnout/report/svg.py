"""Figures for papers as SVG: lines with bands, intervals, and a map of cells."""

import base64
import html
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnout import number_format
from turnout.array_types import Floats

WIDTH = 640
HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 30, 44
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1b1f24")  # Okabe and Ito
DASHES = ("", "6 3", "2 3")
FAINT, FIRM = 'stroke="#d9dde2"', 'stroke="#5b6470"'
LINE_HEIGHT = 18
LETTER_WIDTH = 6.8  # of the font, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, with a band where low and high are given."""

    name: str
    place: int  # position of its arm, which decides colour and dash
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The labels of the two axes, and the marks on the horizontal one."""

    x_label: str
    y_label: str
    x_percent: bool = False
    y_percent: bool = False
    marks: Sequence[float] = field(default=())  # where vertical lines stand


SUM = 'stroke="#1b1f24" stroke-width="2.5"'
SMALL = 5e-4  # a cause that adds less than this to the mismatch is not drawn
Causes = tuple[str, Mapping[str, float], float]  # arm, what each cause adds, their sum
Interval = tuple[str, int, float, float | None, float | None]  # name, place, mean, low, high


def ticks(low: float, high: float, wanted: float) -> list[float]:
    """Return round numbers from low to high, about as many as wanted."""
    raw = (high - low) / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def line_figure(lines: Sequence[Line], axes: Axes) -> str:
    """Return a figure of lines."""
    legend = list(_legend([(line.name, line.place) for line in lines]))
    rows = 1 + max((row for row, *_ in legend), default=-1)
    height = HEIGHT + rows * LINE_HEIGHT
    left, right = _range([line.x for line in lines], 0.0)
    values = [each for line in lines for each in (line.y, line.low, line.high) if each is not None]
    low, high = _range(values, 0.04)
    x_of, y_of = _scale(left, right, LEFT, WIDTH - RIGHT), _scale(low, high, HEIGHT - BOTTOM, TOP)
    parts = [*_grid((left, right), (low, high), axes)]
    parts += [_upright(x_of(mark)) for mark in axes.marks if left <= mark <= right]
    parts += [band for line in lines for band in _bands(line, x_of, y_of)]
    parts += [part for line in lines for part in _curves(line, x_of, y_of)]  # every curve over every band
    parts += [part for row, x, name, place in legend for part in _key(x, HEIGHT + row * LINE_HEIGHT, name, place)]
    return _svg(WIDTH, height, parts)


def interval_figure(rows: Sequence[Interval], label: str) -> str:
    """Return a figure of intervals, one row each, with a line at zero."""
    left = int(min(260, 20 + LETTER_WIDTH * max((len(name) for name, *_ in rows), default=0)))
    height = 20 + 28 * len(rows) + BOTTOM
    ends = np.array([0.0, *(v for _, _, *values in rows for v in values if v is not None)])
    low, high = _range([ends], 0.05)
    x_of = _scale(low, high, left, WIDTH - RIGHT)
    bottom = height - BOTTOM
    parts = [_rule(x_of(v), 10, x_of(v), bottom, FAINT) for v in ticks(low, high, 6)]
    parts += [_text(x_of(v), bottom + 16, number_format.number(v), "middle") for v in ticks(low, high, 6)]
    parts += [_rule(x_of(0), 10, x_of(0), bottom, FIRM), _text(WIDTH - RIGHT, height - 6, label, "end")]
    for at, (name, place, mean, start, end) in enumerate(rows):
        y = 24 + 28 * at
        short = name if len(name) * LETTER_WIDTH < left - 10 else name[: int((left - 18) / LETTER_WIDTH)] + "…"
        parts.append(_text(left - 8, y + 4, short, "end"))
        if start is not None and end is not None:
            parts.append(_rule(x_of(start), y, x_of(end), y, _stroke(place)))
        parts.append(f'<circle cx="{x_of(mean):.1f}" cy="{y}" r="4.5" fill="{_colour(place)}"/>')
    return _svg(WIDTH, height, parts)


def cause_figure(rows: Sequence[Causes]) -> str:
    """Return a bar per arm: what each cause adds to the mismatch, to the left if it corrects; a mark at the sum."""
    names = [name for name in rows[0][1] if any(abs(causes[name]) >= SMALL for _, causes, _ in rows)]
    left = int(min(260, 20 + LETTER_WIDTH * max(len(name) for name, *_ in rows)))
    legend = list(_legend([(name, place) for place, name in enumerate(names)] + [("sum", 0)]))
    bottom = 20 + 28 * len(rows)
    spans = [[sum(v for v in causes.values() if (v > 0) == up) for up in (False, True)] for _, causes, _ in rows]
    low, high = _range([np.array([0.0, *(end for span in spans for end in span)])], 0.05)
    x_of = _scale(low, high, left, WIDTH - RIGHT)
    parts = [_rule(x_of(v), 10, x_of(v), bottom, FAINT) for v in ticks(low, high, 6)]
    parts += [_text(x_of(v), bottom + 16, f"{100 * v:.3g} %".replace("-", "−"), "middle") for v in ticks(low, high, 6)]
    for at, (name, causes, total) in enumerate(rows):
        y, ends = 24 + 28 * at, [0.0, 0.0]
        short = name if len(name) * LETTER_WIDTH < left - 10 else name[: int((left - 18) / LETTER_WIDTH)] + "…"
        parts.append(_text(left - 8, y + 4, short, "end"))
        for place, cause in enumerate(names):
            side = int(causes[cause] > 0)
            start, ends[side] = ends[side], ends[side] + causes[cause]
            near, far = sorted((x_of(start), x_of(ends[side])))
            parts.append(
                f'<rect x="{near:.1f}" y="{y - 8}" width="{far - near:.1f}" height="16" fill="{_colour(place)}"/>'
            )
        parts.append(_rule(x_of(total), y - 12, x_of(total), y + 12, SUM))
    parts += [
        _rule(x_of(0), 10, x_of(0), bottom, FIRM),
        _text(WIDTH - RIGHT, bottom + 34, "share of the weight", "end"),
    ]
    for row, x, name, place in legend:
        y = bottom + 46 + row * LINE_HEIGHT
        key = _rule(x + 6, y - 2, x + 6, y + 14, SUM) if name == "sum" else _box(x, y, place)
        parts += [key, _text(x + 18, y + 11, name, "start")]
    return _svg(WIDTH, bottom + 52 + (1 + max(row for row, *_ in legend)) * LINE_HEIGHT, parts)


def _box(x: float, y: float, place: int) -> str:
    return f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_colour(place)}"/>'


def cell_figure(pixels: NDArray[np.uint8], legend: Sequence[tuple[str, str]], labels: tuple[str, str, int]) -> str:
    """Return a map of cells: (rows, columns, RGB), a legend of (text, colour), and the labels (x, y, last round)."""
    rows, columns, _ = pixels.shape
    height = min(420, max(60, rows * 14))
    wide = WIDTH - LEFT - RIGHT
    image = base64.b64encode(png(pixels)).decode("ascii")
    parts = [
        f'<image x="{LEFT}" y="{TOP}" width="{wide}" height="{height}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>',
        _text(4, 16, labels[1], "start"),
        _text(WIDTH - RIGHT, TOP + height + 34, labels[0], "end"),
    ]
    x_of = _scale(0.5, columns + 0.5, LEFT, WIDTH - RIGHT)
    for mark in ticks(1, max(labels[2], 2), 8):
        if mark == int(mark) and mark <= labels[2]:
            at = x_of(mark * columns / labels[2])
            parts.append(_text(at, TOP + height + 16, number_format.number(mark), "middle"))
    keys = list(_legend([(text, 0) for text, _ in legend]))
    for (row, x, text, _), (_, colour) in zip(keys, legend, strict=True):
        y = TOP + height + 44 + row * LINE_HEIGHT
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" stroke="#d9dde2"/>')
        parts.append(_text(x + 18, y + 11, text, "start"))
    return _svg(WIDTH, TOP + height + 50 + (1 + max((k[0] for k in keys), default=0)) * LINE_HEIGHT, parts)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an RGB picture as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = np.concatenate([np.zeros((rows, 1), dtype=np.uint8), pixels.reshape(rows, -1)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


class _Scale:
    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.step, self.start = low, (end - start) / (high - low), start

    def __call__(self, value: float) -> float:
        return self.start + (float(value) - self.low) * self.step


def _scale(low: float, high: float, start: float, end: float) -> _Scale:
    return _Scale(low, high, start, end)


def _range(values: Sequence[Floats], pad: float) -> tuple[float, float]:
    known = np.concatenate([np.asarray(each, dtype=np.float64) for each in values]) if values else np.zeros(0)
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # apart by rounding only
        return low - 0.5, high + 0.5
    return low - pad * (high - low), high + pad * (high - low)


def _grid(across: tuple[float, float], up: tuple[float, float], axes: Axes) -> Iterator[str]:
    x_of, y_of = _scale(*across, LEFT, WIDTH - RIGHT), _scale(*up, HEIGHT - BOTTOM, TOP)
    for value in ticks(*up, 6):
        yield _rule(LEFT, y_of(value), WIDTH - RIGHT, y_of(value), FAINT)
        text = f"{100 * value:.4g} %" if axes.y_percent else _short(value)
        yield _text(LEFT - 6, y_of(value) + 4, text, "end")
    yield _rule(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, FIRM)
    for value in ticks(*across, 7):
        text = f"{100 * value:.4g} %" if axes.x_percent else _short(value)
        yield _text(x_of(value), HEIGHT - BOTTOM + 16, text, "middle")
    yield _text(4, 16, axes.y_label, "start")
    yield _text(WIDTH - RIGHT, HEIGHT - 10, axes.x_label, "end")


def _short(value: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M")):
        if abs(value) >= size:
            return number_format.signed(f"{value / size:.4g}{letter}")
    return number_format.signed(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}")


def _known_runs(line: Line) -> Iterator[list[int]]:
    """Yield the positions of a line's points, cut where values are missing."""
    known = np.isfinite(line.y)
    cuts = np.flatnonzero(np.diff(known.astype(np.int8))) + 1
    yield from (run.tolist() for run in np.split(np.arange(len(known)), cuts) if len(run) and known[run[0]])


def _bands(line: Line, x_of: _Scale, y_of: _Scale) -> Iterator[str]:
    """Yield the band of a line, one polygon per run of points."""
    if line.low is None or line.high is None:
        return
    for run in _known_runs(line):
        if len(run) > 1:
            over = [_point(x_of(line.x[i]), y_of(line.high[i])) for i in run]
            under = [_point(x_of(line.x[i]), y_of(line.low[i])) for i in run[::-1]]
            yield f'<polygon points="{" ".join([*over, *under])}" fill="{_colour(line.place)}" fill-opacity="0.15"/>'


def _curves(line: Line, x_of: _Scale, y_of: _Scale) -> Iterator[str]:
    """Yield a line, one curve per run of points; a single point is a dot."""
    for run in _known_runs(line):
        if len(run) == 1:
            x, y = x_of(line.x[run[0]]), y_of(line.y[run[0]])
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_colour(line.place)}"/>'
        else:
            points = " ".join(_point(x_of(line.x[i]), y_of(line.y[i])) for i in run)
            yield f'<polyline points="{points}" fill="none" {_stroke(line.place)}/>'


def _point(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _legend(names: Sequence[tuple[str, int]]) -> Iterator[tuple[int, int, str, int]]:
    """Yield (row, x, name, place): names from left to right, on as many rows as they need."""
    row, x = 0, LEFT
    for name, place in names:
        wide = int(44 + LETTER_WIDTH * len(name))
        if x > LEFT and x + wide > WIDTH:
            row, x = row + 1, LEFT
        yield row, x, name, place
        x += wide


def _key(x: int, y: int, name: str, place: int) -> Iterator[str]:
    yield _rule(x, y + 6, x + 24, y + 6, _stroke(place))
    yield _text(x + 30, y + 10, name, "start")


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _stroke(place: int) -> str:
    dash = DASHES[place // len(COLOURS) % len(DASHES)]
    return f'stroke="{_colour(place)}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _upright(x: float) -> str:
    return _rule(x, TOP, x, HEIGHT - BOTTOM, FIRM + ' stroke-dasharray="2 3"')


def _rule(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke}/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, Liberation Sans, sans-serif" font-size="12" fill="#1b1f24">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts, "</svg>", ""])
