"""Carrying out a study at the command: the rounds as they come, the comparison, and what comes next."""

import time
import warnings
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from turnout.cli.error_messages import STOPPED, printable
from turnout.errors import JournalError, RunsFailed, TurnoutError
from turnout.journal import Journal
from turnout.study import Comparison, Result, Study
from turnout.study.interruption import Stopped
from turnout.study.progress import Board, duration, live, plain
from turnout.study.running import engine_named, failure_text

FAILED = 1


def carry_out(
    study: Study, folder: Path, engine: str, *, deterministic: bool = False, accept_changed_data: bool = False
) -> None:
    """Run what the folder does not hold yet, and print what was found."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunsFailed)  # told at the end
        result = _run(study, folder, engine, deterministic, accept_changed_data)
    if result.was_finished:
        typer.echo(f"{folder} already holds this study, finished. To run it anew, choose another folder with --out.")
    try:
        print_comparison(result.comparison())
    except TurnoutError as error:  # a study without a test set has nothing to compare
        typer.echo(str(error))
        if not result.loaded.rounds["answered"].any():
            typer.echo("No client ever took part.")
    took = "" if result.was_finished else f"done in {duration(time.monotonic() - started)}; "
    typer.echo(f"{took}next: turnout compare {folder}")
    if result.failures:
        text = failure_text(result.failures, len(result.loaded.runs))
        typer.echo(printable(f"{text}\nTry them again with: turnout resume {folder}"), err=True)
        raise typer.Exit(FAILED)


def _run(study: Study, folder: Path, engine: str, deterministic: bool, accept_changed_data: bool) -> Result:
    console, worker = Console(), engine_named(engine, deterministic=deterministic)
    board = Board(study, f"{engine}   {folder}")
    board.skipped = _finished_rounds(folder)
    try:
        with (live if console.is_terminal else plain)(board, console) as on_progress:
            worker.watch.tell, worker.watch.advance = board.tell, board.advance
            how: dict[str, Any] = {"deterministic": deterministic, "accept_changed_data": accept_changed_data}
            return study.run(folder, engine=worker, on_progress=on_progress, progress=False, **how)
    except Stopped as error:
        typer.echo(f"stopped: {error.saved} in {folder}. Go on with: turnout resume {folder}", err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        told = f"its last checkpoint is kept in {folder}. Go on with: turnout resume {folder}"
        typer.echo(f"stopped: {told if board.started else 'nothing was run'}", err=True)
        raise typer.Exit(STOPPED) from error
    except TurnoutError as error:
        if board.started is None:
            raise
        typer.echo(printable(f"{error}\nThe run stopped. Go on with: turnout resume {folder}"), err=True)
        raise typer.Exit(FAILED) from error
    except Exception:
        typer.echo(f"The run failed; what it wrote so far is in {folder}.", err=True)
        raise


def _finished_rounds(folder: Path) -> int:
    """Return how many rounds the finished runs of a folder have."""
    try:
        with Journal.open(folder) as journal:
            return int(journal.read("SELECT coalesce(sum(rounds), 0) FROM run WHERE status = 'finished'")[0][0])
    except JournalError:  # nothing there yet; or what is wrong with it is said by the run itself
        return 0


def print_comparison(found: Comparison) -> None:
    """Print the table, and the verdict in words."""
    console = Console()
    typer.echo()
    if console.is_terminal:
        console.print(found.table())
    else:
        typer.echo(found.text())
    typer.echo(f"\n{found.verdict()}\n")
