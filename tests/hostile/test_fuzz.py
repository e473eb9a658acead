"""Every reader of strangers' bytes, fed with damaged files: a result or a TurnoutError, and nothing else.

`benchmarks/fuzz.py` does the same for minutes, steered by coverage; what it found is in `found/` and read here again.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.readers import GOOD, READERS
from turnout.errors import TurnoutError

SLOW = ("pages", "database")
QUICK = [name for name in READERS if name not in SLOW]
FOUND = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())
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


@pytest.mark.parametrize("name", READERS)
def test_contract_the_files_that_are_damaged_are_good_ones(name: str, tmp_path: Path) -> None:
    for data in GOOD[name]:
        assert not isinstance(outcome(name, data, tmp_path), TurnoutError)


def times(count: int) -> settings:
    """Settings for a test that is given so many files, in one folder."""
    mixed = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    return settings(max_examples=count, suppress_health_check=mixed)


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


@pytest.mark.parametrize("name", QUICK)
@given(chooser=st.data())
@times(120)
def test_property_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path, chooser: st.DataObject) -> None:
    outcome(name, chooser.draw(damaged(name)), tmp_path)


@pytest.mark.parametrize("name", SLOW)
@given(chooser=st.data())
@times(20)
def test_property_a_damaged_journal_is_shown_or_refused(name: str, tmp_path: Path, chooser: st.DataObject) -> None:
    outcome(name, chooser.draw(damaged(name)), tmp_path)


@pytest.mark.parametrize("name", QUICK)
@given(data=st.binary(max_size=200))
@times(50)
def test_property_any_bytes_are_read_or_refused(name: str, tmp_path: Path, data: bytes) -> None:
    outcome(name, data, tmp_path)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_contract_what_was_once_found_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    outcome(path.parent.name, path.read_bytes(), tmp_path)
