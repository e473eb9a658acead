"""One writer per folder, whatever else is open, forked or killed; and what readers see while a study begins."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.support.journal_records import add_run, journal
from turnout.errors import JournalError
from turnout.journal import load
from turnout.journal.locking import LOCK, Lock, is_being_written, nobody_writing
from turnout.journal.schema import FILE


def test_contract_a_lock_is_held_once_and_let_go(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    assert is_being_written(tmp_path)
    with pytest.raises(JournalError, match="is being written by another run; nothing was changed"):
        Lock(tmp_path)
    lock.sign()
    with pytest.raises(JournalError, match=f"by another run, process {os.getpid()}; nothing was changed"):
        Lock(tmp_path)
    lock.release()
    lock.release()
    assert not is_being_written(tmp_path)
    Lock(tmp_path).release()
    assert (tmp_path / LOCK).read_bytes() == b""


def test_contract_a_lock_that_was_never_signed_leaves_no_file(tmp_path: Path) -> None:
    Lock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_contract_looking_makes_no_file(tmp_path: Path) -> None:
    assert not is_being_written(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_contract_a_writer_waits_for_readers(tmp_path: Path) -> None:
    journal(tmp_path).close()
    reading, order = threading.Event(), []

    def read() -> None:
        with nobody_writing(tmp_path) as nobody:
            reading.set()
            threading.Event().wait(0.3)
            order.append(nobody)

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    with journal(tmp_path):
        order.append("written")  # type: ignore[arg-type]
    reader.join()
    assert order == [True, "written"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_contract_a_forked_process_does_not_hold_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.sign()
    begun, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"1")
        signal.pause()
    try:
        os.read(begun, 1)
        lock.let_go()  # as when this process is killed
        assert not is_being_written(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_error_a_reader_of_a_study_that_is_being_started_is_told_so(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(JournalError, match=r"is being started: its journal is not there yet. Try again in a moment"):
        load(tmp_path)
    lock.release()
    with pytest.raises(JournalError, match=f"holds no {FILE}"):
        load(tmp_path)


def test_contract_a_journal_is_there_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever its name can be seen, it holds the study."""
    seen = []

    def replace(aside: Path, path: Path) -> None:
        seen.append(path.exists())
        os.rename(aside, path)
        seen.append(load(tmp_path).study["name"])

    monkeypatch.setattr("turnout.safe_files.os.replace", replace)
    with journal(tmp_path) as out:
        add_run(out, "FedAvg", 0, [0.1])
    assert seen == [False, "phones"]


def test_contract_a_journal_is_in_wal_mode_from_its_first_byte_on(tmp_path: Path) -> None:
    with journal(tmp_path) as out:
        add_run(out, "FedAvg", 0, [0.1])
        names = os.listdir(tmp_path)
    assert f"{FILE}-wal" in names
    assert not any(name.endswith("-journal") for name in names)
    assert (tmp_path / FILE).read_bytes()[18:20] == b"\x02\x02"
