"""Starting, losing and leaving a cluster, as a user sees it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.command import Turnout
from tests.support.ray_cluster import KeptOpen, marked, new_cluster, wait_until, wait_until_gone
from tests.support.runs import models_of
from turnout import load, load_study
from turnout.engine import Ray
from turnout.engine.ray import cluster, own_folder
from turnout.engine.ray.own_folder import PREFIX, SHORT, OwnFolder
from turnout.errors import ConfigError

STUDY = """\
name   = "small"
rounds = 200
seeds  = 2
data   = { use = "digits", clients = 12 }
model  = "softmax"
local  = { lr = 0.2, batch_size = 16, epochs = 1 }
checkpoint = { rounds = 1 }

[selection]
cohort_size = 4
"""

PATIENCE = 300.0  # seconds that anything may take on a busy machine
Models = dict[int, dict[str, torch.Tensor]]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A study file in an empty folder."""
    file = tmp_path / "small.toml"
    file.write_text(STUDY)
    return file


@contextmanager
def started(small: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Start the command as a process of its own, in the folder of the study file."""
    command = [sys.executable, "-m", "turnout", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=small.parent, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def num_rounds(folder: Path) -> int:
    """Return how many rounds the journal of a study has that is being run."""
    try:
        return int(load(folder).rounds["round"].max())
    except Exception:  # it is being made
        return 0


def is_helper(pid: int) -> bool:
    """Whether a process is one of Ray's agents, or has just ended."""
    try:
        return "agent" in Path(f"/proc/{pid}/cmdline").read_text().lower()
    except OSError:
        return True


def left_folders() -> set[Path]:
    return set(Path(SHORT or tempfile.gettempdir()).glob(f"{PREFIX}*"))


@pytest.mark.ray
@pytest.mark.slow
def test_contract_a_killed_or_stopped_study_leaves_nothing_and_resume_ends_with_the_same_bits(
    small: Path, on_three: KeptOpen, whole: Models
) -> None:
    others, folders, run = frozenset(marked()), left_folders(), small.parent / "runs" / "small"
    with started(small, "run", "small.toml", "--engine", "ray") as process:
        wait_until(lambda: num_rounds(run) >= 2, PATIENCE, every=0.5)
        process.kill()
    wait_until(lambda: all(is_helper(pid) for pid in set(marked()) - others), seconds=60)
    others = frozenset(marked())  # two helpers, which end after a minute
    left, reached = left_folders() - folders, num_rounds(run)
    assert len(left) == 1, {folder: os.listdir(folder) for folder in left}
    killed = left.pop()
    with started(small, "resume", "runs/small") as process:
        wait_until(lambda: num_rounds(run) >= reached + 2, PATIENCE, every=0.5)
        assert not killed.exists()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    note, said = err.splitlines()
    assert note.startswith("note: stopping: a round that ends within 1 s is saved")
    assert said.startswith("stopped: round ")
    wait_until_gone(but=others)
    assert left_folders() <= folders
    resumed = load_study(small).run(run, engine=on_three)  # on another cluster
    for seed, model in whole.items():
        assert all(torch.equal(model[name], value) for name, value in resumed.state_dict("small", seed).items())


@pytest.fixture(scope="module")
def whole(on_three: KeptOpen, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The models of the study, never stopped, by seed."""
    file = tmp_path_factory.mktemp("whole") / "small.toml"
    file.write_text(STUDY)
    result = load_study(file).run(engine=on_three)
    return {seed: result.state_dict("small", seed) for seed in (0, 1)}


@pytest.mark.ray
@pytest.mark.slow
def test_contract_a_study_outlives_its_cluster(small: Path, on_three: KeptOpen, whole: Models) -> None:
    lost, folder = new_cluster(1), small.parent / "runs" / "small"
    with started(small, "run", "small.toml", "--engine", "ray", "--address", lost.address) as process:
        wait_until(lambda: num_rounds(folder) >= 2, PATIENCE, every=0.5)
        lost.remove_node(lost.head_node, allow_graceful=False)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    first, last = err.splitlines()
    assert first.startswith("The Ray cluster is lost: ")
    assert first.endswith("resume it with turnout resume, on this machine or, with --address, on another cluster.")
    assert last == "The run stopped. Resume with: turnout resume runs/small"
    assert load(folder).failures == {}  # no run is to blame
    there = small.parent / "there"
    shutil.copytree(folder, there)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same engine: no other circumstances
        on_cluster = load_study(small).run(folder, engine=on_three)
    with pytest.warns(UserWarning, match=r"resumes in another environment \(engine was ray and is vectorised"):
        here = models_of(load_study(small).run(there))
    for seed, model in whole.items():
        ended = on_cluster.state_dict("small", seed)
        assert all(torch.equal(model[name], value) for name, value in ended.items())
        flat = torch.cat([value.flatten() for value in ended.values()])
        torch.testing.assert_close(here["small", seed], flat, rtol=1e-4, atol=1e-5)


def test_contract_a_folder_goes_with_its_process_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_folder, "SHORT", str(tmp_path))
    code = "import own_folder; own_folder.SHORT = '.'; kept = own_folder.OwnFolder();"
    beside = {**os.environ, "PYTHONPATH": str(Path(own_folder.__file__).parent)}  # the module alone starts quickly
    for ending in ("", "import os; os.kill(os.getpid(), 9)"):
        subprocess.run([sys.executable, "-c", code + ending], cwd=tmp_path, env=beside, check=not ending)
    (killed,) = tmp_path.iterdir()
    (tmp_path / f"{PREFIX}mine").mkdir()  # somebody else's: it has no lock
    living = OwnFolder()
    assert not killed.exists()
    another = OwnFolder()
    assert {Path(living.name), Path(another.name), tmp_path / f"{PREFIX}mine"} == set(tmp_path.iterdir())
    living.remove()
    another.remove()
    assert [entry.name for entry in tmp_path.iterdir()] == [f"{PREFIX}mine"]


@pytest.fixture
def ray_library() -> Any:
    return pytest.importorskip("ray", reason="ray is not installed: pip install 'turnout[ray]'")


def test_error_without_ray_the_extra_is_named(turnout: Turnout, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = turnout("run", "small.toml", "--engine", "ray")
    assert said.code == 2
    assert said.err == (
        "The Ray engine needs the package ray; it is not installed. "
        "Install turnout with its extra: pip install 'turnout[ray]'.\n"
    )
    assert os.listdir() == ["small.toml"]  # nothing was written


@pytest.mark.parametrize("is_somebody_there", [False, True])
def test_error_an_address_where_no_cluster_answers_is_told_within_seconds(
    is_somebody_there: bool, ray_library: Any, turnout: Turnout, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not is_somebody_there:
            server.close()
        started = time.monotonic()
        said = turnout("run", "small.toml", "--engine", "ray", "--address", f"127.0.0.1:{port}")
    assert time.monotonic() - started < 20
    assert said.code == 2
    assert said.err.startswith(f"The Ray engine needs the head of a cluster at 127.0.0.1:{port}; nobody answered")
    assert os.listdir() == ["small.toml"]  # nothing was written


@pytest.mark.parametrize("address", ["auto", "head", "ray://head:10001", "head:", ":6379"])
def test_error_an_address_that_is_none_says_what_one_is(address: str, ray_library: Any) -> None:
    with pytest.raises(ConfigError, match=r"A Ray cluster's address is HOST:PORT of its head, such as 10.0.0.1:6379"):
        Ray(address)


def test_error_no_workers_names_the_setting(ray_library: Any) -> None:
    with pytest.raises(ConfigError, match=r"The Ray engine needs workers >= 1; got 0. Change workers"):
        Ray(workers=0)
