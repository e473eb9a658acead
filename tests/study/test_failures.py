"""A run that fails: it is on record with the reason, the others go on, and it is tried again when the study is."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from tests.support.command import Turnout
from tests.support.fault_injection import contents, differences
from turnout import load
from turnout.aggregation import FedAvg, FedVARP
from turnout.checkpoint import Checkpoint
from turnout.data import Digits
from turnout.engine import Sequential
from turnout.errors import RunsFailed, UpdateError
from turnout.local import SGD
from turnout.models import Softmax
from turnout.rows import Facts
from turnout.study import Study, arm


@dataclass(frozen=True)
class Fragile:
    """FedAvg that raises when it is told to."""

    breaks: ClassVar[tuple[int, type[Exception]] | None] = None  # how many more rounds it takes, and what is raised
    calls: ClassVar[int] = 0

    def coefficients(self, facts: Facts) -> Any:
        Fragile.calls += 1
        if Fragile.breaks is not None and Fragile.calls > Fragile.breaks[0]:
            raise Fragile.breaks[1]("a mistake of one's own")
        return FedAvg().coefficients(facts)


class Broken(SGD):
    """SGD that raises in the engine."""

    def update(self, slot: object) -> None:
        raise ValueError("no step today")

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"broken"})


@pytest.fixture(autouse=True)
def _whole() -> None:
    Fragile.breaks, Fragile.calls = None, 0


SMALL: dict[str, Any] = {
    "data": Digits(clients=12),
    "model": Softmax(),
    "local": SGD(lr=0.2, batch_size=16, steps=2),
    "rounds": 6,
    "arms": (arm("FedAvg"), arm("mine", aggregation=Fragile()), arm("FedVARP", aggregation=FedVARP())),
    "checkpoint": Checkpoint(rounds=2),
}


@pytest.mark.parametrize("kind", [UpdateError, ValueError, ZeroDivisionError])
@pytest.mark.parametrize("in_folder", [False, True])
def test_contract_a_run_that_fails_is_on_record_and_the_others_go_on(
    tmp_path: Path, in_folder: bool, kind: type[Exception]
) -> None:
    study = Study(**SMALL)
    whole = study.run(engine="sequential")
    Fragile.breaks, Fragile.calls = (3, kind), 0
    said = "a mistake of one's own" if kind is UpdateError else f"{kind.__name__}: a mistake of one's own"
    with pytest.warns(RunsFailed, match=rf"1 of 3 runs failed, and the others are finished:\n  mine, seed 0: {said}"):
        result = study.run(tmp_path / "out" if in_folder else None, engine="sequential")
    assert result.failures == {("mine", 0): said}
    runs = result.loaded.runs.set_index("arm")
    assert runs["status"].to_dict() == {"FedAvg": "finished", "mine": "failed", "FedVARP": "finished"}
    assert result.loaded.rounds.query("arm == 'mine'")["round"].tolist() == [0, 1, 2, 3]
    for name in ("FedAvg", "FedVARP"):
        mine, theirs = (found.state_dict(name, 0) for found in (result, whole))
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    if in_folder:
        assert load(tmp_path / "out").failures == result.failures


def test_identity_a_run_that_is_tried_again_ends_as_if_it_had_not_failed(tmp_path: Path) -> None:
    study = Study(**SMALL)
    whole = study.run(tmp_path / "whole", engine="sequential")
    Fragile.breaks, Fragile.calls = (3, ValueError), 0
    with pytest.warns(RunsFailed):
        study.run(tmp_path / "out", engine="sequential")
    Fragile.calls = 0
    with pytest.warns(RunsFailed), pytest.warns(UserWarning, match="mine, seed 0, failed before and is run again"):
        study.run(tmp_path / "out", engine="sequential")  # and fails again
    Fragile.breaks = None
    with pytest.warns(UserWarning, match="Its error was: ValueError: a mistake of one's own"):
        again = study.run(tmp_path / "out", engine="sequential")
    assert again.failures == {}
    assert again.loaded.runs["status"].tolist() == ["finished"] * 3
    for name in again.loaded.arms:
        mine, theirs = (found.loaded.rounds.query(f"arm == '{name}'") for found in (again, whole))
        assert mine["round"].tolist() == list(range(7))
        assert np.array_equal(mine["loss"], theirs["loss"])


def _stop_at(round: int) -> Any:
    def stop(arm: str, seed: int, record: Any) -> None:
        if record.round == round:
            raise KeyboardInterrupt

    return stop


def test_identity_a_run_that_is_tried_again_and_stopped_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    study = Study(**SMALL)
    whole = study.run(engine="sequential")
    Fragile.breaks, Fragile.calls = (1, ValueError), 0
    with pytest.warns(RunsFailed):
        study.run(tmp_path / "out", engine="sequential")
    Fragile.breaks = None
    with pytest.warns(UserWarning, match="failed before"), pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine="sequential", on_progress=_stop_at(5))
    Fragile.calls = 0
    again = study.run(tmp_path / "out", engine="sequential")
    assert Fragile.calls == 2  # rounds 5 and 6: saved after 4
    assert np.array_equal(again.loaded.rounds["loss"], whole.loaded.rounds["loss"])


def test_identity_runs_that_all_fail_raise_and_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    study = Study(**{**SMALL, "arms": (), "aggregation": Fragile(), "seeds": 2})
    study.run(tmp_path / "whole", engine="sequential")
    Fragile.breaks, Fragile.calls = (6, UpdateError), 0  # in round 4 of both seeds
    with pytest.raises(UpdateError, match="a mistake of one's own"):
        study.run(tmp_path / "out", engine="sequential")
    found = load(tmp_path / "out")
    assert found.runs["status"].tolist() == ["failed", "failed"]
    Fragile.breaks, Fragile.calls = None, 0
    with pytest.warns(UserWarning, match="failed before"):
        study.run(tmp_path / "out", engine="sequential")
    assert differences(contents(tmp_path / "out"), contents(tmp_path / "whole")) == []


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_contract_a_local_rule_that_raises_in_the_engine_stops_its_own_arm(engine: str) -> None:
    arms = (arm("FedAvg"), arm("broken", local=Broken(lr=0.2, batch_size=16, steps=2)))
    with pytest.warns(RunsFailed, match="broken, seed 0: ValueError: no step today"):
        result = Study(**{**SMALL, "arms": arms}).run(engine=engine)
    assert list(result.failures) == [("broken", 0)]
    assert result.loaded.rounds.query("arm == 'FedAvg'")["round"].max() == 6


class TogetherOnly(Sequential):
    """An engine that cannot answer two runs at once."""

    def answer(self, questions: Any) -> Any:
        if len(questions) > 1:
            raise RuntimeError("one at a time")
        return super().answer(questions)


def test_error_a_mistake_that_no_single_run_makes_is_the_engines() -> None:
    with pytest.raises(RuntimeError, match="one at a time"):
        Study(**SMALL).run(engine=TogetherOnly())


STUDY = """
name = "two"
rounds = 3
data = { use = "digits", clients = 12 }
model = { use = "softmax" }
local = { lr = 0.2, batch_size = 16, steps = 2 }
[[arm]]
name = "FedAvg"
[[arm]]
name = "mine"
aggregation = { use = "tests.study.test_failures:Fragile" }
"""


def test_contract_the_command_tells_the_failure_at_the_end_and_exits_with_1(turnout: Turnout, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(STUDY)
    Fragile.breaks = (1, UpdateError)
    code, out, err = turnout("run", "two.toml", "--allow-code")
    assert code == 1
    assert "next: turnout compare runs/two" in out
    assert err.endswith(
        "1 of 2 runs failed, and the others are finished:\n  mine, seed 0: a mistake of one's own\n"
        "Try them again with: turnout resume runs/two\n"
    )
    Fragile.breaks = None
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, err = turnout("resume", "runs/two", "--allow-code")
    assert code == 0
    assert "mine, seed 0, failed before and is run again. Its error was: a mistake of one's own" in err


def test_contract_the_command_exits_with_1_where_every_run_fails(turnout: Turnout, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(STUDY.replace('[[arm]]\nname = "FedAvg"\n', ""))
    Fragile.breaks = (1, UpdateError)
    code, _, err = turnout("run", "two.toml", "--allow-code")
    assert code == 1
    assert "a mistake of one's own\nThe run stopped. Resume with: turnout resume runs/two" in err
