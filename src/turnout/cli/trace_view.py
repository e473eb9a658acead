"""How a trace looks: figures, bars in a terminal, and a page with a picture."""

import html
from pathlib import Path
from typing import Any

import numpy as np

from turnout.array_types import Floats
from turnout.errors import ConfigError
from turnout.fleet.recordings import Kind
from turnout.fleet.traces import STATES, UP, Trace
from turnout.report import svg

DAY_SECONDS = 86_400.0
BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 72  # bars in a line
MOST_ROWS = 300  # clients in the picture
BINS = 600  # times in the picture
SHADES = ((255, 255, 255), (198, 219, 239), (33, 113, 181))  # of each state, in the order of STATES


def kind_named(states: str) -> Kind:
    """Return the reading of a recording that --states names."""
    kinds: tuple[Kind, ...] = ("two_state", "three_state_50", "three_state_75")
    for kind in kinds:
        if kind == states.replace("-", "_"):
            return kind
    raise ConfigError(f"--states must be one of {', '.join(kinds)}; got {states}.")


def summary(trace: Trace, name: str) -> dict[str, Any]:
    """Return the figures of a trace as plain values; `share_up` is the mean share of clients up in equal bins."""
    length = trace.length_seconds
    share = trace.seconds_up() / length
    visits = (trace.ends - trace.starts)[trace.states == UP]
    edges = np.linspace(0.0, length, COLUMNS + 1)
    return {
        "name": name,
        "clients": trace.num_clients,
        "intervals": len(trace.starts),
        "length_seconds": length,
        "client_share_up": {
            "mean": float(share.mean()),
            "median": float(np.median(share)),
            "least": float(share.min()),
            "most": float(share.max()),
        },
        "median_visit_seconds": float(np.median(visits)) if len(visits) else None,
        "never_up": int((share == 0).sum()),
        "bin_seconds": length / COLUMNS,
        "share_up": trace.share_up(edges).tolist(),
    }


def as_text(trace: Trace, name: str) -> str:
    """Return the figures and the rise and fall of availability, a line a day."""
    facts = summary(trace, name)
    share, visit = facts["client_share_up"], facts["median_visit_seconds"]
    lines = [
        f"{name}   {facts['clients']:,} clients   {span(trace.length_seconds)}   {facts['intervals']:,} intervals",
        f"up {share['mean']:.1%} of the time on average (a client: median {share['median']:.1%}, "
        f"least {share['least']:.1%}, most {share['most']:.1%}); {facts['never_up']:,} never",
        f"a visit lasts {span(visit)} (median)" if visit is not None else "nobody is ever up",
        "",
    ]
    return "\n".join(lines + bars_by_day(trace))


def bars_by_day(trace: Trace) -> list[str]:
    """Return one line of bars per day, all to one scale; a shorter trace is one line."""
    length = trace.length_seconds
    row_seconds = DAY_SECONDS if length > DAY_SECONDS else length
    rows = int(np.ceil(length / row_seconds - 1e-9))
    width = row_seconds / COLUMNS
    count = int(np.ceil(length / width - 1e-9))
    edges = np.minimum(np.arange(count + 1) * width, length)
    share = trace.share_up(edges)
    top = float(share.max())
    label = len(f"day {rows}")
    lines = [f"share of clients up, {BARS[0]} none to {BARS[-1]} {top:.0%}"]
    for row in range(min(rows, 14)):
        part = share[row * COLUMNS : (row + 1) * COLUMNS]
        lines.append(f"{f'day {row + 1}' if rows > 1 else '':>{label}}  {bars(part, top)}")
    lines.append(f"{'':{label}}  {_ruler(row_seconds)}")
    return lines + ([f"(and {rows - 14} more days)"] if rows > 14 else [])


def bars(values: Floats, top: float) -> str:
    """Return one bar per value, the tallest at `top`."""
    level = np.round(values / top * (len(BARS) - 1)) if top > 0 else np.zeros(len(values))
    return "".join(BARS[int(place)] for place in np.clip(level, 0, len(BARS) - 1))


def _ruler(row_seconds: float) -> str:
    quarter = COLUMNS // 4
    marks = [f"{span(row_seconds * place / 4):<{quarter}}" for place in range(4)]
    return "".join(marks) + span(row_seconds)


def span(seconds: float) -> str:
    """Return a length of time for reading: its two largest units."""
    for unit, size, smaller, part in (
        ("d", DAY_SECONDS, "h", 3600.0),
        ("h", 3600.0, "min", 60.0),
        ("min", 60.0, "s", 1.0),
    ):
        if seconds >= size:
            whole, rest = divmod(round(seconds / part), round(size / part))
            return f"{whole} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds:g} s"


def write_picture(trace: Trace, name: str, out: Path) -> None:
    """Write a page with the share of clients up over time, and below it who was up when."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out must end in .html; got {out.name}.")
    title = html.escape(f"{name}: {trace.num_clients:,} clients")
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n<h1>{title}</h1>'
    try:
        out.write_text("\n".join([head, *drawn(trace)]), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}. Name another file.") from error


def drawn(trace: Trace) -> tuple[str, str]:
    """Return two SVG figures: the share of clients up, and a map of clients by time, most up first."""
    edges = np.linspace(0.0, trace.length_seconds, BINS + 1)
    hours = (edges[:-1] + edges[1:]) / 2 / 3600
    share = svg.Line(name="share of clients up", place=0, x=hours, y=trace.share_up(edges))
    axes = svg.Axes(x_label="hours", y_label="share of clients up", y_percent=True)
    order = np.argsort(-trace.seconds_up(), kind="stable")
    rows = order[np.unique(np.linspace(0, len(order) - 1, min(MOST_ROWS, len(order))).astype(np.int64))]
    states = np.stack([trace.states_at(each * 3600)[rows] for each in hours], axis=1)
    legend = [
        (state, f"#{red:02x}{green:02x}{blue:02x}") for state, (red, green, blue) in zip(STATES, SHADES, strict=True)
    ]
    labels = ("hours", "clients, most up first", int(trace.length_seconds / 3600))
    cells = svg.cell_figure(np.array(SHADES, dtype=np.uint8)[states], legend, labels)
    return svg.line_figure([share], axes), cells
