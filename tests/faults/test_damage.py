"""A folder that is not as turnout left it is refused with a message, and nothing in it is changed."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from tests.support.fault_injection import Turnout, contents, differences
from tests.support.fault_studies import write_study
from turnout.checkpoint.tensor_files import Piece, about_of, opened, tensors_of, write
from turnout.errors import JournalError
from turnout.journal import Journal, load
from turnout.journal.checksums import checksum_of, update_checksums
from turnout.journal.locking import Lock
from turnout.journal.schema import FILE, VERSION
from turnout.ui.server import Server
from turnout.ui.study_summary import summary_of


@pytest.fixture(scope="module")
def killed(turnout: Turnout) -> Path:
    """A study that was killed when one run had ended and the others had a checkpoint: SQLite's log is still there."""
    out = turnout.folder / "killed"
    study = write_study(turnout.folder, "memories")
    assert turnout.run("run", study, "--out", out, die=("after replace", 6)).code == -9
    assert (out / f"{FILE}-wal").stat().st_size > 0
    return out


@pytest.fixture(scope="module")
def half(turnout: Turnout, killed: Path) -> Path:
    """A study that was killed when one run had ended and the others had a checkpoint, then closed cleanly."""
    out = turnout.folder / "half"
    shutil.copytree(killed, out)
    database = sqlite3.connect(out / FILE)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return out


@pytest.fixture
def folder(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "copy"))


def held(folder: Path) -> dict[str, bytes]:
    """Everything in a folder: hidden files, SQLite's log and its index, too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def vouched(folder: Path, inside: str) -> Path:
    """A file that the journal of this folder vouches for."""
    database = sqlite3.connect(folder / FILE)
    names = [name for (name,) in database.execute("SELECT name FROM file ORDER BY name")]
    database.close()
    result: Path = folder / next(name for name in names if name.startswith(inside))
    return result


def flip(path: Path, bit: int) -> None:
    body = bytearray(path.read_bytes())
    body[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(body))


def lose(inside: str) -> Callable[[Path], None]:
    return lambda folder: vouched(folder, inside).unlink()


def flip_in(inside: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = vouched(folder, inside)
        flip(path, random.Random(inside).randrange(8 * path.stat().st_size))

    return damage


def cut(folder: Path) -> None:
    path = vouched(folder, "checkpoints")
    os.truncate(path, path.stat().st_size - 1)


def from_the_future(folder: Path) -> None:
    database = sqlite3.connect(folder / FILE)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()


def forged(folder: Path, table: str, change: str, *values: Any) -> None:
    """Change a table and vouch for its rows, as anybody can."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.create_function("checksum_of", -1, checksum_of)
        database.execute(f"UPDATE {table} SET {change}", values)
        update_checksums(database, table)


def elsewhere(folder: Path) -> None:
    """The journal names a file outside its folder."""
    forged(folder, "file", "name = '../secret.safetensors' WHERE name LIKE 'models%'")


DAMAGE = {
    "a lost checkpoint": (lose("checkpoints"), "has lost checkpoints/"),
    "a lost model": (lose("models"), "has lost models/"),
    "a flipped bit in a checkpoint": (flip_in("checkpoints"), "is not as it was written (its checksum differs)"),
    "a flipped bit in a model": (flip_in("models"), "is not as it was written (its checksum differs)"),
    "a checkpoint cut short": (cut, "is not as it was written (its checksum differs)"),
    "a later version": (from_the_future, "was written by a later turnout"),
    "a file elsewhere": (elsewhere, "names a file '../secret.safetensors' that turnout does not write"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_error_a_damaged_folder_is_refused_and_left_as_it_is(turnout: Turnout, folder: Path, damage: str) -> None:
    break_it, message = DAMAGE[damage]
    break_it(folder)
    before = held(folder)
    ended = turnout.run("resume", folder)
    assert ended.code == 2, ended.said
    assert message in ended.said
    assert ended.said.count("nothing was changed") == 1
    assert "Traceback" not in ended.said
    assert held(folder) == before


def spoil_log(folder: Path) -> None:
    """A log of which SQLite believes nothing: it would remove it."""
    log = folder / f"{FILE}-wal"
    log.write_bytes(bytes(log.stat().st_size))


def cut_any(folder: Path) -> None:
    path = min((folder / "models").glob("*.safetensors"))
    os.truncate(path, path.stat().st_size - 1)


LOGGED = {
    "a model cut short": (cut_any, "is not as it was written (its checksum differs)"),
    "a rollback journal": (lambda f: (f / f"{FILE}-journal").write_bytes(b"1"), f"holds {FILE}-journal"),
    "a log that is a link": (lambda f: relinked(f / f"{FILE}-wal"), f"{FILE}-wal must be a file; it is a link"),
    "an index with two names": (
        lambda f: os.link(f / f"{FILE}-shm", f / "second"),
        "is the same file as one elsewhere",
    ),
}


def relinked(path: Path) -> None:
    """Put a link to a file in its place."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize("name", LOGGED)
@pytest.mark.parametrize("has_lock", [True, False])
def test_error_a_killed_study_that_is_refused_keeps_every_byte(
    turnout: Turnout, killed: Path, tmp_path: Path, name: str, has_lock: bool
) -> None:
    folder = Path(shutil.copytree(killed, tmp_path / "killed"))
    break_it, message = LOGGED[name]
    break_it(folder)
    if not has_lock:
        (folder / ".lock").unlink()
    before = held(folder)
    ended = turnout.run("resume", folder)
    assert ended.code == 2, ended.said
    assert message in ended.said
    assert ended.said.count("nothing was changed") == 1
    assert held(folder) == before


@pytest.mark.parametrize("spoil", [lambda folder: None, spoil_log], ids=["its log", "a log of nothing"])
def test_contract_reading_a_killed_study_changes_no_byte(
    turnout: Turnout, killed: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    folder = Path(shutil.copytree(killed, tmp_path / "killed"))
    spoil(folder)
    before, aside = held(folder), set(os.listdir(gettempdir()))
    ended = turnout.run("compare", folder)
    assert "Traceback" not in ended.said
    load(folder)
    assert summary_of("killed", folder).state == "interrupted"
    with Server(tmp_path) as server:
        assert server.show(["killed"]).status in (200, 500)
    assert held(folder) == before
    assert not {name for name in os.listdir(gettempdir()) if name.startswith("turnout-")} - aside


def with_facts(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / FILE)) as database:
            ((facts,),) = database.execute("SELECT facts FROM study").fetchall()
        forged(folder, "study", "facts = ?", json.dumps(json.loads(facts) | changes))

    return change


def with_file(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Callable[[Path], None]:
    """Rewrite what a party of runs is taken up from."""

    def rewrite(folder: Path) -> None:
        name = vouched(folder, "checkpoints").relative_to(folder).as_posix()
        tensors = tensors_of(folder, name, "")
        with opened(folder, name) as file:
            about = about_of(file)
        change(tensors, about["runs"])
        new = write(folder, name, [Piece.of(*piece) for piece in tensors.items()], about)
        forged(folder, "file", "sha256 = ?, bytes = ? WHERE name = ?", new.sha256, new.bytes, name)

    return rewrite


def forget_controls(tensors: dict[str, Any], runs: dict[str, Any]) -> None:
    for run in runs.values():
        run["kinds"].pop("world.store control", None)


WAY = {"stacked": True, "block": 4, "workers": 2, "threads": 1, "pixels_last": False}
TUNING = WAY | {"why": "", "settled": True}
FORGED = {
    "runs together that are a text": (with_facts(together="many"), "holds values that turnout did not write"),
    "no runs together": (with_facts(together=0), "must be a whole number from 1 to"),
    "ways that are a list": (with_facts(tuning=[1]), "holds values that turnout did not write"),
    "a way of a million workers": (with_facts(tuning={"k": WAY | {"workers": 10**6}}), "from 1 to 4096"),
    "a way without threads": (with_facts(tuning={"k": {"stacked": True}}), "KeyError: 'block'"),
    "a way without rounds": (with_facts(tuning={"k": TUNING}), "KeyError: 'rounds'"),
    "a round before the first": (
        with_facts(tuning={"k": TUNING | {"rounds": [[0, -1, WAY]]}}),
        "round must be a whole number",
    ),
    "an engine that is none": (with_facts(engine="quantum"), "There is no engine 'quantum'"),
    "a checkpoint of no files": (
        lambda f: forged(f, "checkpoint", "files = 'null'"),
        "did not write (TypeError",
    ),
    "a checkpoint of other files": (lambda f: forged(f, "checkpoint", "files = '[\"x\"]'"), "(KeyError: 'x')"),
    "a file without a name": (lambda f: forged(f, "file", "name = x'00' WHERE name LIKE 'm%'"), "did not write"),
    "another model": (with_file(lambda tensors, runs: tensors.clear()), "did not write (KeyError: 'last_losses')"),
    "a memory that lacks": (with_file(forget_controls), "cannot resume from its checkpoint (KeyError: 'control')"),
}


@pytest.mark.parametrize("name", FORGED)
def test_error_a_folder_that_a_stranger_vouches_for_is_one_message(turnout: Turnout, folder: Path, name: str) -> None:
    forge, message = FORGED[name]
    forge(folder)
    ended = turnout.run("resume", folder)
    assert ended.code == 2, ended.said
    assert message in ended.said
    assert "Traceback" not in ended.said


def test_error_another_config_is_refused_and_the_folder_left_as_it_is(turnout: Turnout, folder: Path) -> None:
    study, before = turnout.folder / "memories.toml", held(folder)
    ended = turnout.run("run", study, "--out", folder, "--set", "local.lr=0.3")
    assert ended.code == 2
    assert "already holds the study 'memories' with other settings (arm, local); nothing was changed" in ended.said
    assert held(folder) == before


def test_contract_how_often_is_saved_may_change_on_the_way(turnout: Turnout, folder: Path) -> None:
    study = turnout.folder / "memories.toml"
    ended = turnout.run("run", study, "--out", folder, "--set", "checkpoint={seconds=0}")
    assert ended.code == 0, ended.said


def test_error_a_second_process_is_refused_and_told_which_is_the_first(turnout: Turnout, folder: Path) -> None:
    lock = Lock(folder)  # which still names the process that was killed
    unsigned = turnout.run("resume", folder)
    lock.sign()
    before = held(folder)
    ended = turnout.run("resume", folder)
    assert held(folder) == before
    lock.release()
    assert unsigned.code == ended.code == 2
    assert "is being written by another run; nothing was changed" in unsigned.said
    assert f"is being written by another run, process {os.getpid()}; nothing was changed" in ended.said


def taken_up(folder: Path, study: tuple[str, str, str]) -> dict[str, Any]:
    """What a folder holds after its study has been taken up again."""
    name, config, facts = study
    Journal.create(folder, study=name, config=json.loads(config), facts=json.loads(facts)).close()
    return contents(folder)


def test_property_a_flipped_bit_in_the_journal_is_refused_or_means_nothing(half: Path, tmp_path: Path) -> None:
    study = contents(half)["study"][0][:3]
    wanted = taken_up(Path(shutil.copytree(half, tmp_path / "whole")), study)
    rng, refused = random.Random(7), 0
    for number in range(30):
        folder = Path(shutil.copytree(half, tmp_path / str(number)))
        flip(folder / FILE, rng.randrange(8 * (folder / FILE).stat().st_size))
        before = held(folder)
        try:
            found = taken_up(folder, study)
        except JournalError:
            refused += 1
            assert held(folder) == before
        else:  # the bit lay where nothing is kept
            assert differences(found, wanted) == []
    assert refused > 5
