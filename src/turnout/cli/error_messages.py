"""Turn errors that a user can act on into a message and an exit code instead of a traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnout.errors import TurnoutError

STOPPED = 130  # what a shell reports after Ctrl-C


def printable(text: str) -> str:
    """Return a text with control characters escaped: a message may quote an untrusted file."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """At a terminal, show what is being started until the block ends: importing PyTorch takes seconds."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    sys.stdout.write(printable(f"starting {what}: loading PyTorch"))
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write("\r\x1b[2K")  # clears the line
        sys.stdout.flush()


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors that a user can act on into a message and exit code 2, and Ctrl-C into exit code 130."""
    try:
        yield
    except TurnoutError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        typer.echo("stopped", err=True)
        raise typer.Exit(STOPPED) from error
