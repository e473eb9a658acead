"""Journals from strangers: what turnout did not write is one message, whatever it is."""

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.command import Turnout
from tests.support.report_journals import change, held, write
from tests.support.untrusted_readers import PLACES, change_cells, journal_folder, pages_of
from turnout.errors import JournalError
from turnout.journal import load
from turnout.journal.codec import MOST_CLIENTS, ZIPPED, decode_clients, decode_counts, decode_floats, decode_ids, pack
from turnout.journal.schema import FILE, VERSION

ADVICE = "Bring back a good copy, or run the study again in another folder"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study's folder, as turnout writes it."""
    return write(tmp_path_factory.mktemp("good") / "phones", seeds=2, rounds=2)


@pytest.fixture
def theirs(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(good, tmp_path / "theirs"))


def script(folder: Path, statements: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.executescript(statements)


SCHEMAS = {
    "a missing table": "DROP TABLE round",
    "a missing column": "ALTER TABLE round DROP COLUMN events",
    "a view in place of a table": "DROP TABLE arm; CREATE VIEW arm AS SELECT 1 AS position, 'FedAvg' AS name",
    "an endless view": """DROP TABLE study; CREATE VIEW study AS WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS name, i AS config, i AS facts FROM n""",
    "a trigger": "CREATE TRIGGER t AFTER UPDATE ON study BEGIN DELETE FROM run; END",
    "a table more": "CREATE TABLE mine (x)",
}


@pytest.mark.parametrize("statements", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("command", ["report", "compare", "resume"])
def test_error_other_tables_than_turnouts_are_refused(
    turnout: Turnout, theirs: Path, command: str, statements: str
) -> None:
    script(theirs, statements)
    before = (theirs / FILE).read_bytes()
    said = turnout(command, theirs)
    assert said.code == 2
    assert "has other tables than turnout makes; nothing was changed" in said.err
    assert len(said.err.splitlines()) == 1
    assert (theirs / FILE).read_bytes() == before
    assert not (theirs / "report.html").exists()


@pytest.mark.parametrize(
    ("version", "message"), [(VERSION + 1, "by a later turnout"), (2**31 - 1, "by a later turnout"), (0, "earlier")]
)
def test_error_another_version_is_refused(theirs: Path, version: int, message: str) -> None:
    script(theirs, f"PRAGMA user_version = {version}")
    with pytest.raises(JournalError, match=message):
        load(theirs)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def scrambled(data: bytes) -> bytes:
    noise = np.random.default_rng(0).bytes(len(data) - 4096)
    return data[:4096] + noise


@pytest.mark.parametrize("damage", [cut, scrambled, lambda _: b"", lambda _: b"SQLite format 3\0", lambda _: b"no"])
@pytest.mark.parametrize("command", ["report", "compare", "resume"])
def test_error_a_corrupt_file_is_one_message(
    turnout: Turnout, theirs: Path, command: str, damage: Callable[[bytes], bytes]
) -> None:
    (theirs / FILE).write_bytes(damage((theirs / FILE).read_bytes()))
    said = turnout(command, theirs)
    assert said.code == 2
    assert str(theirs) in said.err
    assert len(said.err.splitlines()) == 1


VALUES = {
    "a study that is no text": ("UPDATE study SET name = ?", b"\x00"),
    "a name that clears the screen": ("UPDATE study SET name = ?", "\x1b[2J"),
    "a name as long as a book": ("UPDATE study SET name = ?", "a" * 10_000),
    "a config that is a list": ("UPDATE study SET config = ?", "[]"),
    "a config that is nested": ("UPDATE study SET config = ?", '{"a":' * 50_000 + "1" + "}" * 50_000),
    "facts that are nothing": ("UPDATE study SET facts = ?", "null"),
    "bytes for a text": ("UPDATE study SET facts = ?", b"\xff\xfe"),
    "a run's config that is a number": ("UPDATE run SET config = ?", "5"),
    "a time that is none": ("UPDATE run SET started = ?", "yesterday"),
    "a time before all years": ("UPDATE run SET started = ?", "/1"),
    "a seed that is a text": ("UPDATE run SET seed = seed || ?", "x"),
    "a round that is a text": ("UPDATE round SET num_clients = ?", "many"),
    "more clients than there are people": ("UPDATE round SET num_clients = ?", 2**62),
    "fewer than none": ("UPDATE round SET num_clients = ?", -1),
    "a number beyond integers": ("UPDATE round SET bytes_up = ?", 1e300),
    "events that are a table": ("UPDATE round SET events = ?", '{"a": 1}'),
    "rejected that are a list": ("UPDATE round SET rejected = ?", "[1]"),
    "rejected of nobody": ("UPDATE round SET rejected = ?", '{"x": "y"}'),
    "a measure that takes a column's name": ("UPDATE round SET metrics = ?", '{"arm": 1}'),
    "a measure that is a list": ("UPDATE round SET metrics = ?", '{"a": [1]}'),
}


@pytest.mark.parametrize(("statement", "value"), VALUES.values(), ids=VALUES)
def test_error_a_value_that_turnout_does_not_write_is_one_message(theirs: Path, statement: str, value: Any) -> None:
    change(theirs, statement, value)
    with pytest.raises(JournalError, match=r"turnout did not write.*Bring back a good copy|cannot be read"):
        load(theirs)


BLOBS = {
    "a bomb": bytes((ZIPPED,)) + zlib.compress(bytes(600_000_000), 9),
    "compressed bytes that break off": bytes((ZIPPED,)) + zlib.compress(bytes(1000))[:-4],
    "nothing": b"",
    "a width that is none": bytes((255 & ~ZIPPED,)) + bytes(8),
    "an odd length": bytes((3 << 2 | 2,)) + bytes(7),
    "ids that overflow": bytes((3 << 2 | 2,)) + np.full(4, 2**62, dtype="<i8").tobytes(),
    "ids that go back": bytes((3 << 2 | 2,)) + np.array([5, -3], dtype="<i8").tobytes(),
    "ids of others": pack(2, bytes((200,))),
}


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
def test_error_ids_that_turnout_did_not_pack(blob: bytes) -> None:
    with pytest.raises(JournalError, match="holds bytes that turnout did not write"):
        decode_ids(blob, 12)


@pytest.mark.parametrize("clients", [2**62, MOST_CLIENTS + 1, -1])
def test_error_more_clients_than_fit_are_not_counted_out(clients: int) -> None:
    for tag in range(4):
        with pytest.raises(JournalError, match="holds bytes that turnout did not write"):
            decode_ids(bytes((tag,)), clients)


@pytest.mark.parametrize(
    "decode", [lambda blob: decode_clients(blob, 12, 3), decode_counts, lambda blob: decode_floats(blob, 12)]
)
@pytest.mark.parametrize("name", ["a bomb", "compressed bytes that break off", "nothing", "an odd length"])
def test_error_bytes_that_turnout_did_not_pack(decode: Callable[[bytes], object], name: str) -> None:
    with pytest.raises(JournalError, match="holds bytes that turnout did not write"):
        decode(BLOBS[name])


@pytest.mark.parametrize("column", ["up", "clients", "client_accuracy"])
@pytest.mark.parametrize("value", [*BLOBS.values(), "a text", 7], ids=[*BLOBS, "a text", "a number"])
def test_error_a_report_of_such_bytes_is_one_message(
    turnout: Turnout, theirs: Path, column: str, value: bytes | str | int
) -> None:
    change(theirs, f"UPDATE round SET {column} = ? WHERE round = 2", value)
    said = turnout("report", theirs)
    assert (said.code, said.out) == (2, "") or column != "up"
    assert said.code in (0, 2)
    assert len(said.err.splitlines()) <= 1


ZEROS = bytes((ZIPPED,)) + zlib.compress(bytes(21 * 4_000_000), 9)
CLAIMS: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "more clients than any": ("num_clients = ?", (MOST_CLIENTS + 1,), f"more than {MOST_CLIENTS} clients"),
    "others than hold data": ("num_clients = ?, up = x'00'", (MOST_CLIENTS,), f"{MOST_CLIENTS} clients, of whom 12"),
    "more asked than bytes": (
        "asked_count = ?, clients = ?",
        (4_000_000, ZEROS),
        "bytes that claim to hold 25,792,000,000",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_error_a_few_bytes_that_claim_to_hold_much_are_not_unpacked(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "theirs", rounds=30, seeds=1, holdings=held())
    changes, values, message = CLAIMS[name]
    change(folder, f"UPDATE round SET {changes}", *values)
    assert (folder / FILE).stat().st_size < 10_000_000
    with pytest.raises(JournalError, match=message):
        load(folder)


@pytest.mark.parametrize("column", ["clients", "client_accuracy"])
def test_error_bytes_of_other_clients_than_the_round_has_are_refused_before_they_are_unpacked(
    theirs: Path, column: str
) -> None:
    change(theirs, f"UPDATE round SET {column} = ? WHERE round = 2", ZEROS)
    loaded = load(theirs)
    with pytest.raises(JournalError, match=r"breaks off, or is far too long"):
        getattr(loaded, column)


def test_error_a_report_of_too_many_clients_says_how_many_it_can_show(turnout: Turnout, theirs: Path) -> None:
    change(theirs, "UPDATE round SET num_clients = ?, up = x'00'", MOST_CLIENTS)
    said = turnout("report", theirs)
    assert said.code == 2
    assert said.err.startswith("A report shows at most 67,108,864 clients of all runs")
    assert turnout("compare", theirs).code == 0


def test_error_a_journal_without_a_study(theirs: Path) -> None:
    script(theirs, "DELETE FROM study")
    with pytest.raises(JournalError, match="holds no study, or one that turnout did not write"):
        load(theirs)


@pytest.mark.skipif(os.name != "posix", reason="links need no special rights on POSIX only")
def test_contract_a_link_in_a_strangers_folder_is_not_written_through(
    turnout: Turnout, theirs: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    (theirs / "report.html").symlink_to(mine)
    (theirs / ".pid").symlink_to(mine)
    said = turnout("report", theirs)
    assert said.code == 2
    assert "is a link to another place; nothing was written. Choose a file with -o." in said.err
    turnout("resume", theirs)
    assert mine.read_text() == "precious"


texts = st.text(max_size=6) | st.sampled_from(["{}", "[]", "null", '{"a": 1}', "[1]", "nan", "-1", "1e999"])
values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts | st.binary(max_size=40)


@given(st.booleans(), st.lists(st.tuples(st.sampled_from(PLACES), values, st.booleans()), min_size=1, max_size=3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_property_any_journal_is_shown_or_refused(
    tmp_path: Path, finished: bool, changes: list[tuple[tuple[str, str], Any, bool]]
) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(journal_folder(finished), folder, dirs_exist_ok=True)
    change_cells(folder, changes)
    pages_of(folder)
