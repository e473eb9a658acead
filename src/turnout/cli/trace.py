"""`turnout trace`: show an availability trace, or convert a published recording into one."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.error_messages import clear_errors
from turnout.cli.json_output import json_text

trace_app = typer.Typer(
    name="trace", help="Show availability traces, and make them from recordings.", no_args_is_help=True
)


@trace_app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a trace: CSV or Parquet")],
    out: Annotated[Path | None, typer.Option("--out", help="write a chart as a page, NAME.html")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the availability of clients over time."""
    from turnout.cli.trace_view import as_text, summary, write_picture
    from turnout.fleet import read_trace

    with clear_errors():
        trace = read_trace(file)
        if out is not None:
            write_picture(trace, file.name, out)
        typer.echo(json_text(summary(trace, file.name)) if as_json else as_text(trace, file.name))
        if out is not None and not as_json:
            typer.echo(f"\nwrote {out}")


@trace_app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="the JSON file of FLASH or FedScale")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the trace to write: .csv or .parquet")],
    states: Annotated[str, typer.Option("--states", help="two_state, three_state_50 or three_state_75")] = "two_state",
    keep_artefact: Annotated[
        bool,
        typer.Option("--keep-artefact", help="keep the period in which the recording says that everyone is available"),
    ] = False,
) -> None:
    """Convert a published recording into a trace."""
    from turnout.cli.trace_view import kind_named
    from turnout.fleet import read_recording, write_trace

    with clear_errors():
        trace = read_recording(source, states=kind_named(states), keep_artefact=keep_artefact)
        write_trace(trace, out)
        typer.echo(
            f"{out}: {trace.num_clients} clients, {len(trace.starts):,} intervals. Next: turnout trace show {out}"
        )
