"""Trackers, each against its own local store, read back with its own reader."""

import importlib.util
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import turnout as to
from tests.support.command import Turnout
from tests.support.journal_records import record
from tests.support.optional import present
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.study import resolved_settings, study_of
from turnout.track import Mlflow, TensorBoard, Tracked, Trackers, Wandb, numbers

SENT = ["loss", "accuracy", "up", "asked", "answered", "bytes_down", "bytes_up", "gradient_evaluations", "sim_seconds"]
foreign_noise = pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours


def needs(package: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"{package} is not installed: pip install 'turnout[track]'")


def study(*track: str, **changes: Any) -> to.Study:
    settings: dict[str, Any] = {
        "data": to.data.Digits(clients=12),
        "model": to.models.Softmax(),
        "local": to.local.SGD(lr=0.2, batch_size=16, epochs=1),
        "selection": to.selection.Uniform(cohort_size=4),
        "rounds": 3,
        "seeds": 2,
        "name": "phones",
        "arms": (to.arm("FedAvg"), to.arm("mean, a/b", aggregation=to.aggregation.FedAvg(weighting="mean"))),
        "track": track,
    }
    return to.Study(**{**settings, **changes})


def rounds_of(folder: Path, arm: str, seed: int) -> pd.DataFrame:
    rounds = load(folder).rounds
    return rounds[(rounds["arm"] == arm) & (rounds["seed"] == seed)]


def tracked(folder: Path) -> Tracked:
    return Tracked(study="phones", folder=folder, configs={"FedAvg": {"local": {"lr": 0.1}}})


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep wandb on this machine."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def test_golden_numbers_have_the_journals_names() -> None:
    found = numbers(record(2, metrics={"loss": 0.5, "server_lr": 2.0}))
    assert found == {
        "loss": 0.5,
        "server_lr": 2.0,
        "up": 5.0,
        "asked": 2.0,
        "answered": 1.0,
        "bytes_down": 100.0,
        "bytes_up": 50.0,
        "gradient_evaluations": 10.0,
        "probe_evaluations": 0.0,
        "sim_seconds": 1.5,
    }


def test_golden_a_run_is_a_path_of_its_own() -> None:
    of = Tracked(study="s", folder=Path("f"), configs={"a/b": {}, "a:b": {}, "..": {}, "FedAvg, one": {}})
    paths = [of.file_name((arm, 3)) for arm in of.configs]
    assert paths == ["a_b (1)/seed 3", "a_b (2)/seed 3", "arm/seed 3", "FedAvg, one/seed 3"]


@needs("tensorboard")
@foreign_noise
def test_contract_tensorboard_holds_the_journals_numbers(tmp_path: Path) -> None:
    study("tensorboard").run(tmp_path / "out")
    for arm, name in (("FedAvg", "FedAvg"), ("mean, a/b", "mean, a_b")):
        for seed in (0, 1):
            found = scalars(tmp_path / "out" / "tensorboard" / name / f"seed {seed}")
            wanted = rounds_of(tmp_path / "out", arm, seed)
            for metric in SENT:
                assert [step for step, _ in found[metric]] == wanted["round"].tolist()
                np.testing.assert_allclose([value for _, value in found[metric]], wanted[metric], rtol=1e-6)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@needs("tensorboard")
@foreign_noise
def test_contract_tensorboard_takes_back_what_is_run_again(tmp_path: Path) -> None:
    for first, last in ((0, 3), (2, 4)):
        tracker = TensorBoard(tracked(tmp_path))
        for round in range(first, last):
            tracker.record(("FedAvg", 0), record(round))
        tracker.close()
    found = scalars(tmp_path / "tensorboard" / "FedAvg" / "seed 0")
    assert [step for step, _ in found["loss"]] == [0, 1, 2, 3]


@needs("mlflow")
@foreign_noise
def test_contract_mlflow_holds_the_journals_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "out"
    study("mlflow").run(out)
    client, runs = mlflow_runs(out)
    assert sorted(run.info.run_name for run in runs) == sorted(
        f"{arm}, seed {seed}" for arm in ("FedAvg", "mean, a/b") for seed in (0, 1)
    )
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.data.params["local.lr"] == "0.2"
        wanted = rounds_of(out, run.data.params["arm"], int(run.data.params["seed"]))
        for metric in SENT:
            history = client.get_metric_history(run.info.run_id, metric)
            assert [point.step for point in history] == wanted["round"].tolist()
            assert [point.value for point in history] == wanted[metric].tolist()


def mlflow_runs(folder: Path) -> tuple[Any, list[Any]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.sqlite'}")
    experiment = client.get_experiment_by_name("phones")
    return client, list(client.search_runs([present(experiment).experiment_id]))


@needs("mlflow")
@foreign_noise
def test_contract_mlflow_goes_on_with_a_stopped_run_and_starts_another_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for first, last in ((0, 3), (2, 4), (0, 1)):
        tracker = Mlflow(tracked(tmp_path))
        for round in range(first, last):
            tracker.record(("FedAvg", 0), record(round))
        tracker.close()
    client, runs = mlflow_runs(tmp_path)
    assert {run.info.status for run in runs} == {"KILLED"}
    steps = sorted([p.step for p in client.get_metric_history(run.info.run_id, "loss")] for run in runs)
    assert steps == [[0], [0, 1, 2, 3]]


@needs("wandb")
@foreign_noise
@pytest.mark.usefixtures("offline")
def test_contract_wandb_offline_holds_the_journals_numbers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    study("wandb", seeds=1).run(out)
    found = {told["config"]["arm"]: told["history"] for told in map(offline_run, offline_files(out))}
    assert set(found) == {"FedAvg", "mean, a/b"}
    for arm, history in found.items():
        wanted = rounds_of(out, arm, 0)
        assert [point["_step"] for point in history] == wanted["round"].tolist()
        for metric in SENT:
            assert [point[metric] for point in history] == wanted[metric].tolist()


def offline_files(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))


def offline_run(file: Path) -> dict[str, Any]:
    """Read a run that wandb wrote: its settings and its history."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # made when it is imported, so the type checker sees no classes
    told: dict[str, Any] = {"config": {}, "history": []}
    for data in entries(file.read_bytes()):
        entry = messages.Record()
        entry.ParseFromString(data)
        if entry.HasField("run"):
            told["config"] |= {item.key: json.loads(item.value_json) for item in entry.run.config.update}
        if entry.HasField("history"):
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in entry.history.item}
            told["history"].append(items)
    return told


def entries(data: bytes) -> Iterator[bytes]:
    """Yield the entries of LevelDB's log format, which wandb writes: parts of an entry lie in blocks of 32 KiB."""
    at, parts = 7, b""  # after wandb's own header
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # too little for the head of a part: the block is padded
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])  # after four bytes of checksum
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole entry, or its last part
            yield parts
            parts = b""


@needs("wandb")
@foreign_noise
@pytest.mark.usefixtures("offline")
def test_contract_wandb_keeps_the_name_of_a_run_that_goes_on(tmp_path: Path) -> None:
    for first, last in ((0, 2), (2, 3)):
        tracker = Wandb(tracked(tmp_path))
        for round in range(first, last):
            tracker.record(("FedAvg", 0), record(round))
        tracker.close()
    ids = {re.sub(r".*-", "", file.stem) for file in offline_files(tmp_path)}
    assert ids == {tracked(tmp_path).key(("FedAvg", 0))}


def test_contract_trackers_change_nothing_in_what_a_folder_is_of(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    study().run(tmp_path)
    assert study("tensorboard").run(tmp_path).was_finished


class Broken:
    """A tracker that takes one round."""

    package = "turnout"

    @staticmethod
    def check(folder: Path) -> None:
        pass

    def __init__(self, tracked: Tracked) -> None:
        self.taken = 0

    def record(self, place: tuple[str, int], record: object) -> None:
        self.taken += 1
        if self.taken > 1:
            raise OSError("no route")

    def close(self) -> None:
        raise OSError("no route")


def test_contract_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnout.track import open_trackers

    monkeypatch.setitem(open_trackers.TRACKERS, "broken", Broken)
    with pytest.warns(
        UserWarning, match=r"broken failed and gets no more numbers \(OSError: no route\). The run continues"
    ) as told:
        study("broken").run(tmp_path)
    assert len(told) == 1
    assert (load(tmp_path).runs["status"] == "finished").all()


def test_error_a_tracker_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"There is no tracker 'comet'. Set track to a list of tensorboard, mlflow"):
        study("comet")
    with pytest.raises(ConfigError, match=r"'wandb' is named 2 times. Change track"):
        study("wandb", "wandb")


def test_error_a_package_that_is_not_installed_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnout.track import open_trackers

    monkeypatch.setattr(open_trackers, "find_spec", lambda name: None)
    message = r"track asks for mlflow and wandb, which are not installed; nothing was run. Install with: pip install"
    with pytest.raises(ConfigError, match=message):
        study("mlflow", "wandb").run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_error_a_study_in_memory_has_no_place_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnout.track import open_trackers

    monkeypatch.setattr(open_trackers, "find_spec", lambda name: object())
    with pytest.raises(ConfigError, match=r"track \(tensorboard\) needs an output folder.*Pass a folder"):
        study("tensorboard").run()


@needs("mlflow")
@foreign_noise
def test_error_a_store_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()  # a folder that no one, root included, can make
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/store.sqlite")
    with pytest.raises(ConfigError, match=r"mlflow cannot be opened: .*take it out of track"):
        Trackers(["mlflow"], tracked(tmp_path))


STUDY_FILE = """\
track  = ["{tracker}"]
rounds = 1
data   = {{ use = "digits", clients = 12 }}
model  = "softmax"
local  = {{ lr = 0.2, batch_size = 16, epochs = 1 }}
"""


@pytest.mark.parametrize(
    ("tracker", "variables", "is_refused"),
    [
        ("tensorboard", {}, False),
        ("mlflow", {}, False),
        ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:///here.sqlite"}, False),
        ("mlflow", {"MLFLOW_TRACKING_URI": "file:///tmp/store"}, False),
        ("mlflow", {"MLFLOW_TRACKING_URI": "https://example.org"}, True),
        ("mlflow", {"MLFLOW_TRACKING_URI": "databricks://profile"}, True),
        ("mlflow", {"MLFLOW_TRACKING_URI": "postgresql://example.org/store"}, True),
        ("wandb", {}, True),
        ("wandb", {"WANDB_MODE": "online"}, True),
        ("wandb", {"WANDB_MODE": "offline"}, False),
    ],
)
def test_error_a_study_file_sends_nothing_over_the_network_without_permission(
    tracker: str, variables: dict[str, str], is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "study.toml"
    file.write_text(STUDY_FILE.format(tracker=tracker))
    allowed = to.load_study(file, allow_network=True)
    assert allowed.track == (tracker,)
    if not is_refused:
        assert to.load_study(file) == allowed
        return
    message = f"study.toml asks to track with {tracker}, which sends numbers over the network. Allow it with --allow"
    with pytest.raises(ConfigError, match=message):
        to.load_study(file)
    with pytest.raises(ConfigError, match=f"runs/x asks to track with {tracker}"):
        study_of(resolved_settings(allowed), "runs/x")
    assert study_of(resolved_settings(allowed), "runs/x", allow_network=True) == allowed


def test_error_the_command_refuses_a_file_that_would_use_the_network(
    turnout: Turnout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    Path("study.toml").write_text(STUDY_FILE.format(tracker="wandb"))
    said = turnout("run", "study.toml")
    assert said.code == 2
    assert said.err.startswith("study.toml asks to track with wandb, which sends numbers over the network.")
    assert not Path("runs").exists()
    assert turnout("check", "study.toml").code == 0
