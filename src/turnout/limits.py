"""Limits on the size of files that are read, and on memory that is allocated."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError, DataError

GIGABYTE = 1e9


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file; raise DataError if it is no regular file, cannot be read or exceeds the limit."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path} must be a regular file; it is not one. Name the file itself.")
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. Check the path."
        ) from error
    if len(data) > most_bytes:
        raise DataError(f"{path} must have at most {most_bytes:,} bytes; it has more. Replace it, or split it.")
    return data


def read_json(path: Path, most_bytes: int) -> Any:
    """Return the content of a JSON file in UTF-8."""
    data = read_bounded(path, most_bytes)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {type(error).__name__}: {error}. Get the file again.") from error


def machine_bytes() -> int:
    """Return the size of this machine's memory in bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # the system does not report it
        return 1 << 36


def check_memory(needed_bytes: float, what: str, advice: str) -> None:
    """Raise ConfigError if an allocation needs more memory than this machine has."""
    available = machine_bytes()
    if needed_bytes > available:
        raise ConfigError(
            f"{what} needs about {needed_bytes / GIGABYTE:,.0f} GB of memory; this machine has "
            f"{available / GIGABYTE:,.0f} GB. {advice}"
        )
