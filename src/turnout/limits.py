"""What comes from outside is read up to a size, and memory is asked for only where the machine has it."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError, DataError

GIGABYTE = 1e9


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file; raise if it is none, cannot be read or is larger than it may be."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"{path} must be a file; it is something else. Name the file itself.")
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. Check the path."
        ) from error
    if len(data) > most_bytes:
        raise DataError(f"{path} must have at most {most_bytes:,} bytes; it has more. Replace it, or split it.")
    return data


def read_json(path: Path, most_bytes: int) -> Any:
    """Return what a JSON file in UTF-8 holds."""
    data = read_bounded(path, most_bytes)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {type(error).__name__}: {error}. Get the file again.") from error


def machine_bytes() -> int:
    """Return how much memory this machine has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return 1 << 36


def check_memory(needed_bytes: float, what: str, advice: str) -> None:
    """Raise before more memory is asked for than this machine has."""
    has = machine_bytes()
    if needed_bytes > has:
        raise ConfigError(
            f"{what} needs about {needed_bytes / GIGABYTE:,.0f} GB of memory; this machine has "
            f"{has / GIGABYTE:,.0f} GB. {advice}"
        )
