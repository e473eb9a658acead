"""Checks of values from a folder that an attacker may have written; checksums detect only accidental damage."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnout.errors import JournalError

MAX_COUNT = 2**53  # largest count; JSON parsers differ above it
MOST_LETTERS = 200  # longest name, in characters
UNLIKELY = (  # errors that invalid values can cause
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(RecursionError, RuntimeError, MemoryError),
)


@contextmanager
def as_written(where: str) -> Iterator[None]:
    """Turn errors that invalid values cause into a JournalError."""
    try:
        yield
    except UNLIKELY as error:
        raise JournalError(
            f"{where} holds values that turnout did not write ({in_brief(error)}). "
            "Bring back a good copy, or run the study again in another output folder."
        ) from error


def in_brief(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def count_of(value: Any, what: str, most: int = MAX_COUNT, least: int = 0) -> int:
    """Return an untrusted value if it is an integer within these bounds; raise ValueError otherwise."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}; got {value!r:.40}")
    return value


def name_of(value: Any) -> str:
    """Return an untrusted value if it is a short printable name, safe on a terminal; raise ValueError otherwise."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_LETTERS:
        raise ValueError("the name of a study, an arm or a metric must be short and printable")
    return value
