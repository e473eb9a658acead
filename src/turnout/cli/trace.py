"""`turnout trace`: look at a trace of who was up when, or make one of a published recording."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from turnout.cli.plain_json import json_text
from turnout.cli.plainly import said_plainly
from turnout.errors import ConfigError
from turnout.fleet.recordings import Kind, read_recording
from turnout.fleet.trace_files import read_trace, write_trace
from turnout.fleet.traces import UP, Trace
from turnout.streams import Floats

trace_app = typer.Typer(name="trace", help="Look at traces of who was up when, and make them.", no_args_is_help=True)

DAY_SECONDS = 86_400.0
BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 72  # bars in a line
MOST_ROWS = 300  # clients in the picture
BINS = 600  # times in the picture


@trace_app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a trace: CSV or Parquet")],
    out: Annotated[Path | None, typer.Option("--out", help="write a picture: .html, or .png with kaleido")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show availability over time."""
    with said_plainly():
        trace = read_trace(file)
        if out is not None:
            write_picture(trace, file.name, out)
        typer.echo(json_text(summary(trace, file.name)) if as_json else as_text(trace, file.name))
        if out is not None and not as_json:
            typer.echo(f"\nwritten: {out}")


@trace_app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="the JSON of FLASH or FedScale")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the trace to write: .csv or .parquet")],
    states: Annotated[str, typer.Option("--states", help="two_state, three_state_50 or three_state_75")] = "two_state",
    keep_artefact: Annotated[
        bool, typer.Option("--keep-artefact", help="keep the stretch in which the recording has everyone up")
    ] = False,
) -> None:
    """Make a trace of a published recording."""
    with said_plainly():
        trace = read_recording(source, states=_kind(states), keep_artefact=keep_artefact)
        write_trace(trace, out)
        typer.echo(
            f"{out}: {trace.num_clients} clients, {len(trace.starts):,} intervals. Next: turnout trace show {out}"
        )


def _kind(states: str) -> Kind:
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
    """Draw the share of clients up over time, and below it who was up when."""
    picture = drawn(trace, name)
    try:
        if out.suffix.lower() in (".html", ".htm"):
            picture.write_html(out, include_plotlyjs=True)
        elif out.suffix.lower() in (".png", ".svg", ".pdf"):
            picture.write_image(out)
        else:
            raise ConfigError(f"--out must end in .html, or in .png, .svg or .pdf; got {out.name}.")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}. Name another file.") from error
    except (ImportError, ValueError, RuntimeError) as error:
        raise ConfigError(f"A {out.suffix} picture needs kaleido. Install it, or name the file .html.") from error


def drawn(trace: Trace, name: str) -> Any:
    """Return the picture as a plotly figure."""
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    edges = np.linspace(0.0, trace.length_seconds, BINS + 1)
    hours = (edges[:-1] + edges[1:]) / 2 / 3600
    order = np.argsort(-trace.seconds_up(), kind="stable")
    rows = order[np.unique(np.linspace(0, len(order) - 1, min(MOST_ROWS, len(order))).astype(np.int64))]
    states = np.stack([trace.states_at(seconds * 3600)[rows] for seconds in hours], axis=1)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.35, 0.65], vertical_spacing=0.04)
    line = graph_objects.Scatter(x=hours, y=trace.share_up(edges), line_shape="hvh", name="share up")
    shades = [[0, "white"], [0.5, "#c6dbef"], [1, "#2171b5"]]
    map_ = graph_objects.Heatmap(x=hours, z=states, zmin=0, zmax=2, colorscale=shades, showscale=False)
    figure.add_trace(line, row=1, col=1)
    figure.add_trace(map_, row=2, col=1)
    figure.update_yaxes(title_text="share of clients up", tickformat=".0%", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="clients, most up first", autorange="reversed", row=2, col=1)
    figure.update_xaxes(title_text="hours", row=2, col=1)
    figure.update_layout(title=f"{name}: {trace.num_clients:,} clients", showlegend=False, template="plotly_white")
    return figure
