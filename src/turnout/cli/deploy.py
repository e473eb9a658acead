"""`turnout deploy`: run a study on real devices, through Flower."""

from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli.error_messages import clear_errors, printable, starting
from turnout.cli.json_output import json_text

deploy_app = typer.Typer(name="deploy", help="Run a study on real devices, through Flower.", no_args_is_help=True)

Dir = Annotated[Path, typer.Argument(metavar="DIR", help="the deployment's folder")]


@deploy_app.command()
def init(
    folder: Dir,
    study: Annotated[Path | None, typer.Option("--study", help="the study file; an example by default")] = None,
    devices: Annotated[int, typer.Option("--devices", min=1, max=10_000, help="number of devices, one key each")] = 3,
    hosts: Annotated[
        list[str] | None, typer.Option("--host", help="a name or address of the server; may be repeated")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="port of the SuperLink")] = 9092,
) -> None:
    """Make a folder with a Flower app around the study, certificates, keys, scripts and a README."""
    with clear_errors():
        with starting("deploy init"):
            from turnout.deploy.create import create

        given = tuple(dict.fromkeys([*(hosts or ()), "localhost", "127.0.0.1"]))
        create(folder, study, devices, given, port)
        typer.echo(f"{folder}: {devices} devices. Read {folder / 'README.md'}; next: turnout deploy check {folder}")


@deploy_app.command()
def check(
    folder: Dir,
    trial: Annotated[bool, typer.Option("--trial", help="run two rounds with all devices in this process")] = False,
) -> None:
    """Check a folder before it is used; with --trial, say what devices must allow."""
    with clear_errors():
        with starting("deploy check"):
            from turnout.deploy import check as checking
            from turnout.deploy.folder import Folder

        for line in checking.check(Folder(folder)):
            typer.echo(printable(line))
        for line in checking.trial(Folder(folder)) if trial else ():
            typer.echo(printable(line))
        typer.echo("no problems found")


@deploy_app.command()
def run(folder: Dir) -> None:
    """Start the study on the devices, or continue it from its journal."""
    with clear_errors():
        with starting("deploy run"):
            from turnout.deploy.check import check as check_folder
            from turnout.deploy.folder import Folder
            from turnout.deploy.launch import follow, is_finished, start
            from turnout.deploy.status import status as status_of

        place = Folder(folder.absolute())
        check_folder(place)
        if is_finished(place):
            typer.echo(f"{place.run} already holds the whole study; next: turnout report {folder / 'run'}")
            return
        number = start(place)
        typer.echo(f"started Flower run {number}; Ctrl-C stops only this view")
        finished = follow(place, number, _print_round)
        if not finished:
            why = status_of(place)["error"] or f"See: FLWR_HOME={place.flower_home} flwr log {number}"
            told = f"The run ended before the study was finished. {why}\nContinue with: turnout deploy run {folder}"
            typer.echo(printable(told), err=True)
            raise typer.Exit(1)
        typer.echo(f"finished; next: turnout report {folder / 'run'}")


def _print_round(one: Any) -> None:
    values = {"loss": one.loss, "accuracy": one.accuracy}
    measured = "".join(f"   {name} {value:.3f}" for name, value in values.items() if value is not None)
    typer.echo(f"round {one.round:>4}   asked {one.num_asked}   answered {one.num_answered}{measured}")


@deploy_app.command()
def status(folder: Dir, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Show who is connected, who was asked, what came back, how far and why not."""
    with clear_errors():
        with starting("deploy status"):
            from turnout.deploy import status as reading
            from turnout.deploy.folder import Folder

        found = reading.status(Folder(folder))
        typer.echo(json_text(found) if as_json else printable(reading.as_text(found)))
