"""Checksums of rows: each row stores a checksum of its other values, so that damage is found before a run resumes."""

import math
import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

TABLES_WITH_CHECKSUMS = ("study", "arm", "file", "checkpoint", "run", "round")


def checksum_of(*values: Any) -> bytes:
    """Return the checksum of a row's values; SQLite's round trip (ints for whole floats, NULL for NaN) keeps it."""
    columns = [b"none" if value is None else _as_bytes(value) for value in values]
    return blake2b(b"\x1f".join(columns), digest_size=8).digest()


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, bytes):
        return b"%d:%b" % (len(value), value)
    if not isinstance(value, float):
        return f"={value}".encode()
    if math.isnan(value):
        return b"none"  # SQLite stores NaN as NULL
    return b"%d" % value if value.is_integer() else repr(value).encode()


def update_checksums(database: sqlite3.Connection, table: str, where: str = "1", values: Sequence[Any] = ()) -> None:
    """Compute and store the checksums of the rows that match a condition."""
    database.execute(f"UPDATE {table} SET checksum = checksum_of({_columns(database, table)}) WHERE {where}", values)


def find_damage(database: sqlite3.Connection) -> str | None:
    """Return a description of the first damage found in a database; None if it is sound."""
    ((finding,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
    if finding != "ok":
        return str(finding)

    for table in TABLES_WITH_CHECKSUMS:
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
