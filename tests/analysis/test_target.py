"""A target names its metric, is checked at once, and can be changed on a finished study."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tests.support.command import Turnout
from tests.support.report_journals import write
from tests.support.tasks import blob_federation
from turnout.analysis.compare import compare
from turnout.analysis.target import Target, parse_target, target_of
from turnout.coordinator import Cadence
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.local import SGD
from turnout.study import Arm, Study, load_study, resolved_settings, to_toml

SMALL: dict[str, Any] = {
    "data": blob_federation(),
    "model": nn.Linear(4, 3).double(),
    "local": SGD(lr=0.1, steps=1),
    "rounds": 2,
}
FILE = """\
name   = "small"
rounds = 2
target = {target}

[data]
use     = "digits"
clients = 5

[model]
use = "softmax"

[local]
lr    = 0.1
steps = 1
"""
FORM = r'Write target = \{ accuracy = 0.80 \} in a study file, target=\{"accuracy": 0.8\} in Python'


def file_with(target: str, folder: Path) -> Path:
    file = folder / "small.toml"
    file.write_text(FILE.format(target=target))
    return file


def test_golden_a_target_is_one_value_of_one_metric() -> None:
    assert target_of({"accuracy": 1}) == Target("accuracy", 1.0)
    assert target_of({"loss": -3.5}) == Target("loss", -3.5)  # a quadratic's loss may lie below zero
    assert target_of({"accuracy": np.float32(0.5)}) == Target("accuracy", 0.5)
    assert target_of(None) is None
    assert parse_target("accuracy=0.85") == Target("accuracy", 0.85)


WRONG: list[tuple[Any, str, str]] = [
    (0.8, "0.8", rf"A target names its metric; got 0.8. {FORM}"),
    ("high", '"high"', rf"A target names its metric; got 'high'. {FORM}"),
    ([0.8], "[0.8]", rf"A target names its metric; got \[0.8\]. {FORM}"),
    ({}, "{}", rf"A target has exactly one metric; got 0. {FORM}"),
    ({"accuracy": 0.8, "loss": 1.0}, "{ accuracy = 0.8, loss = 1.0 }", rf"exactly one metric; got 2. {FORM}"),
    ({"accuracy": "0.8"}, '{ accuracy = "0.8" }', rf"A target is a metric and a number; got 'accuracy': '0.8'. {FORM}"),
    ({"accuracy": True}, "{ accuracy = true }", r"A target is a metric and a number; got 'accuracy': True"),
    ({"accuracy": 80}, "{ accuracy = 80 }", r"must lie in \(0, 1\]; got 80: accuracy is a share .*; write 0.80"),
    ({"accuracy": 0.0}, "{ accuracy = 0.0 }", r"must lie in \(0, 1\]; got 0: .*write 0.80"),
    ({"accuracy": float("nan")}, "{ accuracy = nan }", r"must lie in \(0, 1\]; got nan"),
    ({"loss": float("inf")}, "{ loss = inf }", r"target for loss must be finite; got inf"),
    ({"loss": 10**400}, "{ loss = 1e999 }", r"target for loss must be finite; got inf"),
    ({"f1": 0.5}, "{ f1 = 0.5 }", r"must be one that is measured, loss or accuracy; got 'f1'. Change target"),
]


@pytest.mark.parametrize(("given", "written", "message"), WRONG, ids=[str(given)[:30] for given, _, _ in WRONG])
def test_error_a_wrong_target_is_refused_at_once(given: Any, written: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        Study(**SMALL, target=given)
    with pytest.raises(ConfigError, match=rf"small.toml:3: .*{message}"):
        load_study(file_with(written, tmp_path))


def test_error_a_target_whose_metric_is_left_out_is_refused(tmp_path: Path) -> None:
    message = r"must be one that is measured, loss; got 'accuracy'. Change target, or evaluate.metrics"
    only_loss = Cadence(metrics=("loss",))
    with pytest.raises(ConfigError, match=message):
        Study(**SMALL, target={"accuracy": 0.8}, evaluate=only_loss)
    with pytest.raises(ConfigError, match=message):
        Study(**SMALL, target={"accuracy": 0.8}, arms=(Arm("a"), Arm("b", {"evaluate": only_loss})))
    file = file_with("{ accuracy = 0.8 }", tmp_path)
    file.write_text(file.read_text() + '[evaluate]\nmetrics = ["loss"]\n')
    with pytest.raises(ConfigError, match=message):
        load_study(file)


def test_identity_a_target_is_written_and_read_back(tmp_path: Path) -> None:
    study = load_study(file_with("{ accuracy = 0.8 }", tmp_path))
    assert study.target == Target("accuracy", 0.8)
    again = tmp_path / "again.toml"
    again.write_text(to_toml(resolved_settings(study)))
    assert resolved_settings(load_study(again)) == resolved_settings(study)
    assert load_study(again, ["target.accuracy=0.6"]).target == Target("accuracy", 0.6)
    assert load_study(again, ["target=none"]).target is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.85", r"--target needs its metric; got '0.85'. Write --target accuracy=0.85"),
        ("accuracy=high", r"--target needs a number; got 'accuracy=high'"),
        ("accuracy=85", r"accuracy is a share between 0 and 1; write 0.85"),
    ],
)
def test_error_the_commands_form_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_target(text)


def test_golden_a_finished_study_takes_another_target_and_runs_nothing(tmp_path: Path) -> None:
    first = Study(**SMALL, target={"accuracy": 0.9}).run(tmp_path / "out")
    again = Study(**SMALL, target={"loss": 1.0}).run(tmp_path / "out")
    assert (first.was_finished, again.was_finished) == (False, True)
    assert load(tmp_path / "out").study["config"]["target"] == {"loss": 1.0}
    assert again.comparison().target == Target("loss", 1.0)
    assert "target: loss 1 (as given)" in again.table()
    assert all("target" not in config for config in load(tmp_path / "out").runs["config"])  # a run has none


def test_golden_the_command_takes_another_target(turnout: Turnout, tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", config={"target": {"accuracy": 0.21}})
    shown = turnout("compare", folder)
    assert "target: accuracy 21.00 % (as given)" in shown.out
    shown = turnout("compare", folder, "--target", "loss=0.9")
    assert (shown.code, "target: loss 0.9 (as given)" in shown.out) == (0, True)
    assert "final accuracy" in shown.out
    told = json.loads(turnout("compare", folder, "--target", "accuracy=0.3", "--json").out)
    assert told["target"] == {"metric": "accuracy", "value": 0.3}
    assert turnout("report", folder, "--target", "accuracy=0.33", "-o", "page.html").code == 0
    assert "target: accuracy 33.00 % (as given)" in Path("page.html").read_text()
    assert turnout("compare", folder, "--target", "80").code == 2


def test_golden_costs_of_one_metric_stand_beside_the_ends_of_another(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "phones", arms=("A",), seeds=3))
    result = compare(loaded, target={"loss": 0.75})
    reached = []
    for _, run in loaded.rounds.groupby("seed"):
        reached.append(run["round"].to_numpy()[(run["loss"] <= 0.75).to_numpy().argmax()])
    assert result.metric == "accuracy"
    assert result.rows[0].to_target["round"].median == np.median(reached)


@pytest.mark.parametrize("target", ["high", 0.8, {"accuracy": "high"}, [1]])
def test_error_a_journal_with_a_target_that_turnout_does_not_write(
    target: Any, turnout: Turnout, tmp_path: Path
) -> None:
    folder = write(tmp_path / "phones")
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        ((config,),) = database.execute("SELECT config FROM study").fetchall()
        database.execute("UPDATE study SET config = ?", (json.dumps({**json.loads(config), "target": target}),))
    said = turnout("compare", folder)
    assert (said.code, said.out) == (2, "")
    assert "A target" in said.err
    assert "Traceback" not in said.err
    assert turnout("compare", folder, "--target", "accuracy=0.2").code == 0
    assert turnout("report", folder, "-o", "page.html").code == 0
