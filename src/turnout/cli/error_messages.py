"""What a user can act on is a message and an exit code, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnout.errors import TurnoutError

STOPPED = 130  # what a shell reports after Ctrl-C


def printable(text: str) -> str:
    """Return a text with what would steer a terminal written out: a message may quote a stranger's file."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def said_plainly() -> Iterator[None]:
    """Turn what a user can act on into a message and exit code 2, and Ctrl-C into 130."""
    try:
        yield
    except TurnoutError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        typer.echo("stopped", err=True)
        raise typer.Exit(STOPPED) from error
