"""Good files with pieces cut out, put in, repeated or changed; and what a reader says of them."""

from pathlib import Path

from hypothesis import strategies as st

from tests.support.untrusted_readers import GOOD, READERS
from turnout.errors import TurnoutError

SLOW = ("pages", "database")
TOKENS = (
    b"", b"\0", b"\n", b"\r", b'"', b"'", b"\\", b",", b".", b"=", b"[", b"]", b"{", b"}", b":", b"-", b"_", b"#",
    b"\xef\xbb\xbf", b"\xff", b"\x80", b"1e999", b"nan", b"-1", b"99999999999999999999", b"0x", b"1979-05-27",
    b"\x1f\x8b", b"PK\x03\x04", b"use", b"none", b"arm", b"null", b"true", b"\xed\xa0\x80", b"\\ud800",
    b"turnout.study:Study",
)  # fmt: skip


def outcome(name: str, data: bytes, folder: Path) -> object:
    """Return what a reader says; anything but a TurnoutError falls through."""
    for left in folder.iterdir():
        left.unlink()
    try:
        return READERS[name](data, folder)
    except TurnoutError as error:
        assert str(error)  # noqa: PT017
        return error


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A good file with a few pieces cut out, put in, repeated or moved."""
    data = draw(st.sampled_from(GOOD[name]))
    for _ in range(draw(st.integers(1, 4))):
        at, until = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        kind = draw(st.sampled_from(["cut", "put", "repeat", "flip"]))
        if kind == "cut":
            data = data[:at] + data[min(until, at + 30) :]
        elif kind == "put":
            data = data[:at] + draw(st.sampled_from(TOKENS) | st.binary(max_size=6)) + data[at:]
        elif kind == "repeat":
            data = data[:at] + data[at : at + 30] * draw(st.integers(2, 4)) + data[at:]
        elif at < len(data):
            data = data[:at] + bytes((data[at] ^ draw(st.integers(1, 255)),)) + data[at + 1 :]
    return data
