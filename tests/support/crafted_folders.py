"""Folders and study files of an attacker who wants something outside of them to change, and a watch over all of it."""

import json
import os
import sqlite3
import stat
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

from turnout.journal.checksums import checksum_of, update_checksums
from turnout.journal.schema import FILE
from turnout.study import load_study

MAGIC = bytes.fromhex("d9d505f920a163d7")
ROUNDS = 6
STUDY = f"""\
    name       = "theirs"
    rounds     = {ROUNDS}
    data       = {{ use = "synthetic", clients = 6, holdout = 0.2 }}
    model      = "softmax"
    local      = {{ lr = 0.1, batch_size = 8, steps = 2 }}
    checkpoint = {{ rounds = 1 }}
    """
Craft = Callable[[Path, Path], object]  # (the attacker's folder, a folder of the user's)


def study_text() -> str:
    return dedent(STUDY)


def half_done(folder: Path, study: Path) -> Path:
    """Run half of a study and stop it: there are checkpoints to go on from."""

    def stop(arm: str, seed: int, record: Any) -> None:
        if record.round == ROUNDS // 2:
            raise KeyboardInterrupt

    study.write_text(study_text())
    with suppress(KeyboardInterrupt):
        load_study(study).run(folder, on_progress=stop)
    return folder


def users_files(folder: Path) -> Path:
    """Make files of the user's that must not change, and folders in which nothing must appear."""
    (folder / "models").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "precious.txt").write_text("precious")
    (folder / "checkpoints" / "0-9.safetensors").write_text("mine")
    (folder / "models" / "0-9.safetensors.part").write_text("mine")
    return folder


def everything(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return all that is below a folder: kinds, sizes, times, contents and where links point. No link is followed."""
    found: dict[str, tuple[Any, ...]] = {}
    for here, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(here) / name
            now = path.lstat()
            kind = stat.S_IFMT(now.st_mode)
            told: Any = None
            if kind == stat.S_IFREG:
                told = (now.st_size, now.st_mtime_ns, sha256(path.read_bytes()).hexdigest())
            elif kind == stat.S_IFLNK:
                told = os.readlink(path)
            else:
                told = now.st_mtime_ns
            found[str(path.relative_to(root))] = (kind, stat.S_IMODE(now.st_mode), told)
    return found


def rollback_journal(victim: Path, pages: int = 1) -> bytes:
    """Return a rollback journal of SQLite, of no pages, that names a file: SQLite deletes that file."""
    header = MAGIC + struct.pack(">5I", 0, 0, pages, 512, 4096)
    name = str(victim).encode()
    end = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    return header.ljust(512, b"\0") + end


def pages_of(database: Path) -> int:
    return int.from_bytes(database.read_bytes()[28:32], "big")


def with_rollback_journal(name: str) -> Craft:
    def craft(folder: Path, mine: Path) -> None:
        database = folder / name
        if not database.exists() or not database.stat().st_size:
            with closing(sqlite3.connect(database)) as new:
                new.execute("CREATE TABLE x (y)")
        text = rollback_journal(mine / "precious.txt", pages_of(database))
        database.with_name(f"{name}-journal").write_bytes(text)

    return craft


def replaced(path: Path) -> Path:
    """Take a file or a folder away and return where it was."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"moved-{path.name}"))
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    return path


def link(name: str, to: str) -> Craft:
    return lambda folder, mine: replaced(folder / name).symlink_to(mine / to)


def hard_link(name: str) -> Craft:
    def craft(folder: Path, mine: Path) -> None:
        if (folder / name).exists():  # the user's own file has the same contents
            (mine / "precious.txt").write_bytes((folder / name).read_bytes())
        os.link(mine / "precious.txt", replaced(folder / name))

    return craft


def moved_journal(folder: Path, mine: Path) -> None:
    """The journal itself is a link to one of the user's."""
    (folder / FILE).rename(mine / FILE)
    (folder / FILE).symlink_to(mine / FILE)


def links_in_place_of(inner: str, end: str, to: str) -> Craft:
    """A link under every name that a checkpoint may have next."""

    def craft(folder: Path, mine: Path) -> None:
        for round in range(ROUNDS + 2):
            path = folder / inner / f"0-{round}.safetensors{end}"
            path.parent.mkdir(exist_ok=True)
            if not os.path.lexists(path):
                path.symlink_to(mine / to)

    return craft


def forged(table: str, change: str) -> Craft:
    """Change a table and vouch for it."""

    def craft(folder: Path, mine: Path) -> None:
        with closing(sqlite3.connect(folder / FILE)) as database, database:
            database.create_function("checksum_of", -1, checksum_of)
            database.execute(f"UPDATE {table} SET {change}", {"mine": str(mine)} if ":mine" in change else {})
            update_checksums(database, table)

    return craft


def tracked(tracker: str, then: Craft) -> Craft:
    """The study asks for a tracker, for which the folder holds something."""

    def craft(folder: Path, mine: Path) -> None:
        with closing(sqlite3.connect(folder / FILE)) as database:
            ((config,),) = database.execute("SELECT config FROM study").fetchall()
        changed = json.dumps(json.loads(config) | {"track": [tracker]}).replace("'", "''")
        forged("study", f"config = '{changed}'")(folder, mine)
        then(folder, mine)

    return craft


def hard_linked_store(folder: Path, mine: Path) -> None:
    """The store is a database of the user's under a second name."""
    with closing(sqlite3.connect(mine / "precious.sqlite")) as database:
        database.execute("CREATE TABLE x (y)")
    os.link(mine / "precious.sqlite", folder / "mlflow.sqlite")


def no_log_yet(folder: Path, mine: Path) -> None:
    """A log that names nothing, whose place is a link."""
    link(f"{FILE}-wal", "new-file")(folder, mine)


CRAFTED: dict[str, Craft] = {
    "nothing": lambda folder, mine: None,
    "a rollback journal that names a file": with_rollback_journal(FILE),
    "a rollback journal of the lock": with_rollback_journal(".lock"),
    "a journal that is a link": moved_journal,
    "a journal with a second name": hard_link(FILE),
    "a log that is a link": link(f"{FILE}-wal", "precious.txt"),
    "a log that is a link to nothing": no_log_yet,
    "a log with a second name": hard_link(f"{FILE}-wal"),
    "an index that is a link": link(f"{FILE}-shm", "precious.txt"),
    "an index with a second name": hard_link(f"{FILE}-shm"),
    "a lock that is a link": link(".lock", "precious.txt"),
    "a lock that is a link to nothing": link(".lock", "new-file"),
    "a lock with a second name": hard_link(".lock"),
    "a lock that is a pipe": lambda folder, mine: os.mkfifo(replaced(folder / ".lock")),
    "a new journal that is a link": link(f"{FILE}.part", "precious.txt"),
    "checkpoints that are a link": link("checkpoints", "checkpoints"),
    "models that are a link": link("models", "models"),
    "models that are a link to nothing": link("models", "new-folder"),
    "new checkpoints that are links": links_in_place_of("checkpoints", ".part", "precious.txt"),
    "new checkpoints that are links to nothing": links_in_place_of("checkpoints", ".part", "new-file"),
    "new models that are links": links_in_place_of("models", ".part", "precious.txt"),
    "new models that are links to nothing": links_in_place_of("models", ".part", "new-file"),
    "later checkpoints that are links": links_in_place_of("checkpoints", "", "precious.txt"),
    "later models that are links to nothing": links_in_place_of("models", "", "new-file"),
    "a report that is a link": link("report.html", "precious.txt"),
    "a report that is a link to nothing": link("report.html", "new-file"),
    "a report with a second name": hard_link("report.html"),
    "a file elsewhere that it vouches for": forged("file", "name = :mine || '/checkpoints/0-9.safetensors'"),
    "a file above that it vouches for": forged("file", "name = '../mine/checkpoints/0-9.safetensors'"),
    "a tensorboard that is a link": tracked("tensorboard", link("tensorboard", "models")),
    "a run's tensorboard that is a link": tracked("tensorboard", link("tensorboard/theirs", "models")),
    "a store of mlflow with a rollback journal": tracked("mlflow", with_rollback_journal("mlflow.sqlite")),
    "a store of mlflow with a second name": tracked("mlflow", hard_linked_store),
    "a wandb that is a link": tracked("wandb", link("wandb", "models")),
}
STUDIES = {
    "a name that leads up": 'name = "../mine/models"',
    "a name from the root": 'name = "/tmp/turnout-was-here"',
    "code": 'aggregation = { use = "os:remove", path = "../mine/precious.txt" }',
    "a trace elsewhere": "fleet.availability = "
    '{ use = "recorded", trace = "../mine/precious.txt", round_seconds = 60.0 }',
}
