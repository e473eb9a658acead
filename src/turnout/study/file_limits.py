"""Limits of a study file: reading an untrusted file takes little time and ends with a study or a message."""

import re
import stat
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError

MOST_BYTES = 4 << 20
MOST_LEVELS = 32  # of nested tables and lists
MOST_ARMS = 1000
MOST_PROBLEMS = 100  # problems
INTEGERS = range(-(2**63), 2**63)  # the range of integers in TOML
KINDS = {
    "a folder": stat.S_ISDIR,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
}
TOO_LONG = "A whole number must fit into 64 bits; this one does not. Write a smaller one."

_KEY = r"""(?>[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_KEY}(?:[ \t]*\.[ \t]*{_KEY}){{{MOST_LEVELS}}}")


def read_limited(file: Path, label: str) -> str:
    """Return the text of a study file; raise ConfigError if it is too large or not a regular file."""
    kind = file.stat().st_mode
    if not stat.S_ISREG(kind):
        what = next((name for name, test in KINDS.items() if test(kind)), "something else")
        raise ConfigError(f"{label} must be a study file; it is {what}. Name the file itself.")
    with file.open("rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigError(
            f"{label}: A study file has at most {MOST_BYTES:,} bytes; this one has more. "
            "Name the study file; keep long lists in a data or trace file."
        )
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    if long := _LONG_KEY.search(text):  # the parser's time is quadratic in the length of a dotted key
        raise ConfigError(too_deep_message(f"{label}:{text.count(chr(10), 0, long.start()) + 1}"))
    return text


def too_deep_message(where: str) -> str:
    """Return the message for tables and lists that are nested too deeply."""
    return f"{where}: Tables and lists may be nested at most {MOST_LEVELS} levels deep; these are deeper. Flatten them."


def is_too_deep(document: Any) -> bool:
    """Whether tables and lists are nested too deeply; counted level by level, without recursion."""
    level = [document]
    for _ in range(MOST_LEVELS + 1):
        inside = (value.values() if isinstance(value, dict) else value for value in level)
        level = [value for values in inside for value in values if isinstance(value, dict | list) and value]
        if not level:
            return False
    return True


def check_integer(value: Any, where: str) -> Any:
    """Return a value; raise ConfigError if it is an integer that does not fit into 64 bits."""
    if type(value) is int and value not in INTEGERS:
        raise ConfigError(f"{where}: {TOO_LONG}" if where else TOO_LONG)
    return value
