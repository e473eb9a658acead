"""The type of the fixture `turnout`: a command, and what it left behind."""

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Turnout = Callable[..., Said]
