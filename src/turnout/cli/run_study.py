"""Run a study at the command line: show progress, then print the comparison and the next command."""

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from turnout.analysis.until_clear import UntilClear
from turnout.cli.comparison_table import comparison_table
from turnout.cli.error_messages import STOPPED, printable
from turnout.engine import Engine
from turnout.engine.vectorised.tuning import describe
from turnout.errors import ConfigError, JournalError, RunsFailed, TurnoutError
from turnout.journal import Journal
from turnout.study import Comparison, Result, Study
from turnout.study.interruption import Stopped
from turnout.study.progress import ProgressBoard, duration, live, plain
from turnout.study.running import engine_named, failure_text

FAILED = 1


def with_seeds_added(study: Study, is_wanted: bool, most: int | None) -> Study:
    """Return the study, with seeds added until every difference is clear if `--until-clear` or `--most` ask for it."""
    if most is not None and not is_wanted:
        raise ConfigError(f"--most is the largest number of seeds of --until-clear; got {most} without it. Add it.")
    if not is_wanted:
        return study
    rule = study.until_clear or UntilClear()
    return replace(study, until_clear=rule if most is None else UntilClear(most=most))


def carry_out(
    study: Study,
    folder: Path,
    engine: str,
    *,
    address: str | None = None,
    deterministic: bool = False,
    accept_changed_data: bool = False,
) -> None:
    """Run the rounds that the folder does not hold yet, and print the comparison."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunsFailed)  # printed at the end instead
        worker = engine_named(engine, deterministic=deterministic, address=address)
        try:
            result = _run(study, folder, worker, deterministic, accept_changed_data)
        except JournalError as error:
            raise JournalError(f"{error} The option --out chooses the output folder.") from error
    if result.was_finished:
        typer.echo(f"{folder} already holds all results of this study. To run it again, choose another with --out.")
    try:
        print_comparison(result.comparison())
    except TurnoutError as error:  # a study without a test set has nothing to compare
        typer.echo(str(error))
        if not result.loaded.rounds["answered"].any():
            typer.echo("No client took part in any round.")
    how = describe(result.loaded.study["facts"].get("tuning", {}))
    if how and not result.was_finished:
        typer.echo(printable(f"ran {how}"))
    took = "" if result.was_finished else f"done in {duration(time.monotonic() - started)}; "
    typer.echo(f"{took}next: turnout compare {folder}")
    if result.failures:
        text = failure_text(result.failures, len(result.loaded.runs))
        typer.echo(printable(f"{text}\nTry them again with: turnout resume {folder}"), err=True)
        raise typer.Exit(FAILED)


def _run(study: Study, folder: Path, worker: Engine, deterministic: bool, accept_changed_data: bool) -> Result:
    console = Console()
    board = ProgressBoard(study, f"{worker.name}   {folder}")
    board.skipped = _finished_rounds(folder)
    try:
        with (live if console.is_terminal else plain)(board, console) as on_progress:
            worker.watch.tell, worker.watch.advance = board.tell, board.advance
            how: dict[str, Any] = {"deterministic": deterministic, "accept_changed_data": accept_changed_data}
            return study.run(folder, engine=worker, on_progress=on_progress, progress=False, **how)
    except Stopped as error:
        typer.echo(f"stopped: {error.saved} in {folder}. Resume with: turnout resume {folder}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        kept = f"the last checkpoint is in {folder}. Resume with: turnout resume {folder}"
        typer.echo(f"stopped: {kept if board.started else 'nothing was run'}", err=True)
        raise typer.Exit(STOPPED) from error
    except TurnoutError as error:
        if board.started is None:
            raise
        typer.echo(printable(f"{error}\nThe run stopped. Resume with: turnout resume {folder}"), err=True)
        raise typer.Exit(FAILED) from error
    except Exception:
        typer.echo(f"The run failed; the rounds before are in {folder}.", err=True)
        raise


def _finished_rounds(folder: Path) -> int:
    """Return the number of rounds of all finished runs in a folder; 0 if there is no journal."""
    try:
        with Journal.open(folder) as journal:
            return journal.finished_rounds()
    except JournalError:  # there is no journal yet; if it is damaged, the run itself raises
        return 0


def print_comparison(comparison: Comparison) -> None:
    """Print the comparison's table and its verdict."""
    console = Console()
    typer.echo()
    if console.is_terminal:
        console.print(comparison_table(comparison))
    else:
        typer.echo(comparison.text())
    typer.echo(f"\n{comparison.verdict()}\n")
