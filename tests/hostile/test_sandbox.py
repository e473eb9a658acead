"""Whatever a stranger's folder or study file holds, nothing outside of it changes: a whole sandbox is watched."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from tests.support.command import Turnout
from tests.support.crafted_folders import CRAFTED, STUDIES, everything, half_done, study_text, users_files
from turnout.errors import JournalError, TurnoutError
from turnout.journal import load
from turnout.journal.locking import Lock
from turnout.journal.open_database import open_while_written
from turnout.journal.schema import FILE
from turnout.ui.server import Server


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was stopped half-way."""
    place = tmp_path_factory.mktemp("half")
    return half_done(place / "theirs", place / "theirs.toml")


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one of the user's, and the user's own place for temporary files; the command is run in `work`."""
    users_files(tmp_path / "mine")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "theirs.toml").write_text(study_text())
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def shown(folder: Path) -> None:
    """Look at every page of a folder, as `turnout ui` shows them."""
    with Server(folder.parent) as server, suppress(TurnoutError):
        server.index()
        server.show([folder.name])


def loaded(folder: Path) -> None:
    with suppress(TurnoutError):
        found = load(folder)
        _ = found.clients
        found.state_dict(found.arms[0], 0)


ACTIONS: dict[str, Callable[[Turnout, Path], object]] = {
    "compare": lambda turnout, folder: turnout("compare", folder),
    "report": lambda turnout, folder: turnout("report", folder),
    "resume": lambda turnout, folder: turnout("resume", folder),
    "run": lambda turnout, folder: turnout("run", "theirs.toml", "--out", folder),
    "load": lambda turnout, folder: loaded(folder),
    "ui": lambda turnout, folder: shown(folder),
}


READING = ("compare", "load", "ui")
ROLLBACK = "a rollback journal that names a file"


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == ROLLBACK else pytest.mark.slow) for name in CRAFTED]
)
def test_property_a_crafted_folder_changes_nothing_outside_of_it_and_reading_it_nothing_at_all(
    turnout: Turnout, half: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch, name: str, action: str
) -> None:
    folder = Path(shutil.copytree(half, sandbox / "theirs"))
    CRAFTED[name](folder, sandbox / "mine")
    monkeypatch.chdir(sandbox / "work")
    seen = everything if action in READING else outside
    before = seen(sandbox)
    ACTIONS[action](turnout, folder)
    assert seen(sandbox) == before


def outside(sandbox: Path) -> dict[str, tuple[object, ...]]:
    """All there is in the sandbox, but what is in the stranger's folder itself."""
    return {path: told for path, told in everything(sandbox).items() if not path.startswith("theirs")}


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", STUDIES)
def test_property_a_crafted_study_file_changes_nothing_outside_its_runs(
    turnout: Turnout, sandbox: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    lines = [line for line in study_text().splitlines() if line.split()[0] != STUDIES[name].split()[0]]
    (sandbox / "work" / "theirs.toml").write_text("\n".join([STUDIES[name], *lines]))
    monkeypatch.chdir(sandbox / "work")
    before = everything(sandbox)
    said = turnout(command, "theirs.toml")
    assert said.code == 2 or command == "check"
    assert everything(sandbox) == before


def test_contract_the_sandbox_would_see_a_file_deleted(half: Path, sandbox: Path) -> None:
    """The rollback journal does what it is said to do where SQLite is let at it."""
    folder = Path(shutil.copytree(half, sandbox / "theirs"))
    CRAFTED[ROLLBACK](folder, sandbox / "mine")
    before = outside(sandbox)
    database = sqlite3.connect(folder / FILE)
    database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    database.close()
    assert before.keys() - outside(sandbox).keys() == {"mine/precious.txt"}


ROLLBACKS: dict[str, Callable[[Path], object]] = {
    "one that names a file": lambda path: CRAFTED[ROLLBACK](path.parent, path.parent.parent / "mine"),
    "an empty one": lambda path: path.touch(),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}


READERS: dict[str, Callable[[Path], object]] = {"load": load, "watch": open_while_written}


def said_of(turnout: Turnout, folder: Path, action: str) -> str:
    """Return what a user is told who does this with a folder."""
    if action in READERS:
        with pytest.raises(JournalError) as refused:
            READERS[action](folder)
        return str(refused.value)
    if action == "ui":
        with Server(folder.parent) as server:
            server.index()
            return server.cache.lines()[1][folder.name].problem
    said = turnout(action, folder)
    assert said.code == 2
    return said.err


@contextmanager
def held_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder as its writer does."""
    lock = Lock(folder)
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize("is_written", [False, True], ids=["left", "being written"])
@pytest.mark.parametrize("action", ["compare", "report", "resume", "ui", *READERS])
@pytest.mark.parametrize("kind", ROLLBACKS)
def test_error_a_folder_with_a_rollback_journal_is_refused_before_any_database_is_opened(
    turnout: Turnout,
    half: Path,
    sandbox: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    action: str,
    is_written: bool,
) -> None:
    folder = Path(shutil.copytree(half, sandbox / "theirs"))
    ROLLBACKS[kind](folder / f"{FILE}-journal")
    opened: list[object] = []

    def connect(target: object, *_: object, **__: object) -> None:
        opened.append(target)
        pytest.fail("opened")

    monkeypatch.setattr(sqlite3, "connect", connect)
    with held_lock(folder) if is_written else nullcontext():
        before = everything(sandbox)
        assert "holds journal.sqlite-journal, a rollback journal" in said_of(turnout, folder, action)
        assert everything(sandbox) == before
    assert opened == []


def test_error_a_trackers_database_with_a_second_name_elsewhere_is_refused(
    turnout: Turnout, half: Path, sandbox: Path
) -> None:
    folder = Path(shutil.copytree(half, sandbox / "theirs"))
    CRAFTED["a store of mlflow with a second name"](folder, sandbox / "mine")
    said = turnout("resume", folder)
    assert said.code == 2
    assert "mlflow.sqlite is the same file as one elsewhere (a hard link)" in said.err
