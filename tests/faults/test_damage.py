"""A folder that is not as turnout left it is refused with a message, and nothing in it is changed."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import Turnout, contents, differences, turnouts
from tests.faults.studies import write_study
from turnout.errors import JournalError
from turnout.journal import Journal
from turnout.journal.schema import FILE, VERSION, Lock


@pytest.fixture(scope="module")
def turnout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turnout]:
    with turnouts(tmp_path_factory.mktemp("damage")) as server:
        yield server


@pytest.fixture(scope="module")
def half(turnout: Turnout) -> Path:
    """A study that was killed when one run had ended and the others had a checkpoint, then closed cleanly."""
    out = turnout.folder / "half"
    study = write_study(turnout.folder, "memories")
    assert turnout.run("run", study, "--out", out, die=("after replace", 5)).code == -9
    database = sqlite3.connect(out / FILE)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return out


@pytest.fixture
def folder(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "copy"))


def held(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


def vouched(folder: Path, inside: str) -> Path:
    """A file that the journal of this folder vouches for."""
    database = sqlite3.connect(folder / FILE)
    names = [name for (name,) in database.execute("SELECT name FROM file ORDER BY name")]
    database.close()
    return folder / next(name for name in names if name.startswith(inside))


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


def elsewhere(folder: Path) -> None:
    """The journal names a file outside its folder, and vouches for its own rows."""
    database = sqlite3.connect(folder / FILE)
    from turnout.journal.sealing import checksum_of, seal

    database.create_function("checksum_of", -1, checksum_of)
    database.execute("UPDATE file SET name = '../secret.safetensors' WHERE name LIKE 'models%'")
    seal(database, "file")
    database.commit()
    database.close()


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
    before = held(folder)
    lock = Lock(folder)
    try:
        ended = turnout.run("resume", folder)
    finally:
        lock.release()
    assert ended.code == 2
    assert f"is being written by another run, process {os.getpid()}; nothing was changed" in ended.said
    assert held(folder) == before


def taken_up(folder: Path, study: tuple[str, str, str]) -> dict[str, Any]:
    """What a folder holds after its study has been taken up again."""
    name, config, facts = study
    Journal.create(folder, study=name, config=json.loads(config), facts=json.loads(facts)).close()
    return contents(folder)


def test_property_a_flipped_bit_in_the_journal_is_refused_or_means_nothing(half: Path, tmp_path: Path) -> None:
    study = contents(half)["study"][0][:3]
    wanted = taken_up(Path(shutil.copytree(half, tmp_path / "whole")), study)
    rng, refused = random.Random(7), 0
    for number in range(60):
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
    assert refused > 10
