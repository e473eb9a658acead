"""Checksums: each row carries one over its other values, so that a flipped bit is seen before a run goes on."""

import math
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

SEALED = ("study", "arm", "file", "checkpoint", "run", "round")


def checksum_of(*values: Any) -> bytes:
    """Return a checksum of a row's values; the same for values given to SQLite and those it gives back."""
    return blake2b(b"\x1f".join(map(_told, values)), digest_size=8).digest()


def _told(value: Any) -> bytes:
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return b"none"  # SQLite keeps NaN as NULL
    if isinstance(value, float) and not value.is_integer():
        return repr(value).encode()
    return b"%d" % value if isinstance(value, int | float) else f"={value}".encode()


def seal(database: sqlite3.Connection, table: str, where: str = "1", values: Sequence[Any] = ()) -> None:
    """Bring the checksums of some rows up to date."""
    database.execute(f"UPDATE {table} SET checksum = checksum_of({_columns(database, table)}) WHERE {where}", values)


def broken(database: sqlite3.Connection) -> str | None:
    """Return what is damaged in a database; None if nothing is."""
    ((found,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
    if found != "ok":
        return str(found)
    for table in SEALED:
        query = f"SELECT count(*) FROM {table} WHERE checksum IS NOT checksum_of({_columns(database, table)})"
        ((count,),) = database.execute(query).fetchall()
        if count:
            return f"{count} row{'s'[: count > 1]} of its table {table} changed"
    for digest, body in database.execute("SELECT digest, body FROM array"):
        if blake2b(body, digest_size=16).digest() != digest:
            return "a row of its table array changed"
    return None


def _columns(database: sqlite3.Connection, table: str) -> str:
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name for name in names if name != "checksum")
