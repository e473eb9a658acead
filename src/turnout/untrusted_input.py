"""Values from a folder that somebody else may have written: checksums tell damage, not intent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnout.errors import JournalError

MOST = 2**53  # of anything that is counted; beyond it JSON's readers differ
MOST_LETTERS = 200
UNLIKELY = (  # what such values lead to
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(RecursionError, RuntimeError, MemoryError),
)


@contextmanager
def as_written(where: str) -> Iterator[None]:
    """Turn what values that turnout does not write lead to into one message."""
    try:
        yield
    except UNLIKELY as error:
        raise JournalError(
            f"{where} holds values that turnout did not write ({in_brief(error)}). "
            "Bring back a good copy, or run the study again in another folder with --out."
        ) from error


def in_brief(error: BaseException) -> str:
    """Return an error's kind and first line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def count_of(value: Any, what: str, most: int = MOST, least: int = 0) -> int:
    """Return a whole number in these bounds, of a place that can hold anything."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} for {what}, which is a whole number from {least} to {most}")
    return value


def name_of(value: Any) -> str:
    """Return a name; one that could move a terminal's cursor, or fill its screen, is refused."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_LETTERS:
        raise ValueError("a name that no study, arm or measure can have")
    return value
