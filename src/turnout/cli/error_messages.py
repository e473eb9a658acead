"""What a user can act on is a message and an exit code, never a traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnout.errors import TurnoutError

STOPPED = 130  # what a shell reports after Ctrl-C


def printable(text: str) -> str:
    """Return a text with what would steer a terminal written out: a message may quote a stranger's file."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """At a terminal, show what is being started until it has: PyTorch alone takes seconds to import."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    sys.stdout.write(printable(f"starting {what}: loading PyTorch"))
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write("\r\x1b[2K")  # the header takes its place
        sys.stdout.flush()


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
