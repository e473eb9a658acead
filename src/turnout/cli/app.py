"""The commands. Exit codes: 0 fine, 1 the run failed, 2 bad input, 130 stopped by the user."""

import os
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from turnout.cli.listing import described, found_rules, listed, listing_text, shown_text
from turnout.cli.plain_json import json_text
from turnout.cli.plainly import STOPPED, said_plainly
from turnout.cli.progress import Board, duration, live, plain
from turnout.cli.trace import trace_app
from turnout.errors import ConfigError, TurnoutError
from turnout.journal import load
from turnout.study import Comparison, Result, Study, compare, load_study, resolved, to_toml

app = typer.Typer(
    name="turnout",
    help="Federated learning with whoever turns up.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(trace_app)

StudyName = Annotated[str, typer.Argument(metavar="FILE|NAME", help="a study file, or a name of `turnout ls studies`")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit."""
    sys.path.append(os.getcwd())  # so that use = "my_rules:MyRule" finds a file beside the study
    warnings.showwarning = _note
    app(args=argv, prog_name="turnout")


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"note: {message}", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnout {version('turnout')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Federated learning with whoever turns up."""


@app.command()
def run(
    study: StudyName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting; may be repeated")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="repeat with seeds 0 to N-1")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="where it goes; runs/NAME if left out")] = None,
    engine: Annotated[str, typer.Option("--engine", help="vectorised or sequential")] = "vectorised",
) -> None:
    """Run a study: every arm with every seed, then the comparison."""
    with said_plainly():
        overrides = [*(settings or ()), *([] if seeds is None else [f"seeds={seeds}"])]
        value = load_study(study, overrides)
        folder = Path("runs") / value.name if out is None else out
        started = time.monotonic()
        result = _run(value, folder, engine)
        if result.was_finished:
            typer.echo(
                f"{folder} already holds this study, finished. To run it anew, choose another folder with --out."
            )
        _print_outcome(result)
        took = "" if result.was_finished else f"done in {duration(time.monotonic() - started)}; "
        typer.echo(f"{took}next: turnout compare {folder}")


def _run(study: Study, folder: Path, engine: str) -> Result:
    console = Console()
    board = Board(study, f"{engine}   {folder}")
    try:
        with (live if console.is_terminal else plain)(board, console) as on_progress:
            return study.run(folder, engine=engine, on_progress=on_progress)
    except KeyboardInterrupt as error:
        kept = (
            f"{board.finished} of {board.runs} runs are finished and kept in {folder}; the same command does the rest."
        )
        typer.echo(f"stopped: {kept if board.started else 'nothing was run'}", err=True)
        raise typer.Exit(STOPPED) from error
    except TurnoutError:
        raise
    except Exception:
        typer.echo(f"The run failed; what it wrote so far is in {folder}.", err=True)
        raise


def _print_outcome(result: Result) -> None:
    try:
        found = result.comparison()
    except TurnoutError as error:  # a study without a test set has nothing to compare
        typer.echo(str(error))
        return
    _print_comparison(found)


def _print_comparison(found: Comparison) -> None:
    console = Console()
    typer.echo()
    if console.is_terminal:
        console.print(found.table())
    else:
        typer.echo(found.text())
    typer.echo(f"\n{found.verdict()}\n")


@app.command()
def check(study: StudyName, as_json: AsJson = False) -> None:
    """Read a study and print it with every setting; no data is loaded."""
    with said_plainly():
        value = load_study(study)
        plain_study = resolved(value)
        if as_json:
            typer.echo(json_text(plain_study))
        else:
            arms, seeds = len(value.versions()), len(value.all_seeds)
            typer.echo(f"# {arms} arm{'s'[: arms > 1]} x {seeds} seed{'s'[: seeds > 1]}: nothing is wrong with it")
            typer.echo(to_toml(plain_study), nl=False)


@app.command()
def ls(
    axis: Annotated[str | None, typer.Argument(help="an axis, or recipes, losses, studies; all if left out")] = None,
    as_json: AsJson = False,
) -> None:
    """List what there is to choose from."""
    with said_plainly():
        found = listed(axis)
        typer.echo(json_text(found) if as_json else listing_text(found))


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help='a rule, such as fedavg or server/sgd, a recipe, or "package.module:Name"')
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a rule says of itself: intuition, formula, settings, reference."""
    with said_plainly():
        found = [described(*match) for match in found_rules(name)]
        typer.echo(json_text(found) if as_json else "\n\n".join(map(shown_text, found)))


@app.command(name="compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders that turnout run wrote")],
    metric: Annotated[str | None, typer.Option("--metric", help="what to compare; accuracy, else loss")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="the arm others are held against")] = None,
    target: Annotated[float | None, typer.Option("--target", help="the value that costs are measured to")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of one study, or of several."""
    with said_plainly():
        loaded = [load(_folder(run)) for run in runs]
        if target is None and len(loaded) == 1:
            target = loaded[0].study["config"].get("target")
        found = compare(loaded, metric=metric, baseline=baseline, target=target)
        if as_json:
            typer.echo(json_text(found.as_dict()))
        else:
            _print_comparison(found)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders that turnout run wrote")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the file; report.html in the folder")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="a folder for figures and tables as files")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page that says what happened, in words first."""
    from turnout.cli.report import report as write_report  # drawing is imported only when asked for

    with said_plainly():
        write_report([_folder(run) for run in runs], out, figures, as_json=as_json)


def _folder(run: Path) -> Path:
    if run.is_dir():
        return run
    inside = Path("runs") / run
    if inside.is_dir():
        return inside
    raise ConfigError(f"There is no folder {run}. Name a folder that turnout run wrote, such as runs/demo.")
