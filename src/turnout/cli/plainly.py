"""What a user can act on is a message and an exit code, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnout.errors import TurnoutError

STOPPED = 130  # what a shell reports after Ctrl-C


@contextmanager
def said_plainly() -> Iterator[None]:
    """Turn what a user can act on into a message and exit code 2, and Ctrl-C into 130."""
    try:
        yield
    except TurnoutError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        typer.echo("stopped", err=True)
        raise typer.Exit(STOPPED) from error
