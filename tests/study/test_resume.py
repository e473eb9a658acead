"""Taking a study up again in Python: parties, engines, models, and what is said when circumstances have changed."""

import signal
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.harness import contents, differences
from turnout import load
from turnout.aggregation import FedAvg, FedVARP
from turnout.checkpoint import Checkpoint
from turnout.data import Digits
from turnout.engine import Sequential, Vectorised
from turnout.engine.task import Question
from turnout.engine.tuning import Way
from turnout.errors import ConfigError, JournalError
from turnout.local import SGD
from turnout.models import Softmax
from turnout.requests import Answer, Record, Train
from turnout.selection import Uniform
from turnout.study import Study, arm, resolved, study_of
from turnout.study.stopping import asked_to_stop

SMALL: dict[str, Any] = {
    "data": Digits(clients=12),
    "model": Softmax(),
    "local": SGD(lr=0.2, batch_size=16, steps=2),
    "selection": Uniform(cohort_size=4),
    "rounds": 6,
    "seeds": 3,
    "arms": (arm("FedAvg", aggregation=FedAvg()), arm("FedVARP", aggregation=FedVARP(), rounds=3)),
    "checkpoint": Checkpoint(rounds=2),
}


def stopping_at(seed: int, round: int) -> Any:
    def stop(arm: str, of: int, record: Record) -> None:
        if (of, record.round) == (seed, round):
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("together", [1, 4, 6])
def test_identity_a_stopped_study_ends_bit_for_bit_the_same(tmp_path: Path, engine: str, together: int) -> None:
    study = Study(**SMALL)
    whole = study.run(tmp_path / "whole", engine=engine, together=together)
    for seed, round in ((0, 1), (1, 3), (2, 5)):
        with pytest.raises(KeyboardInterrupt):
            study.run(tmp_path / "out", engine=engine, together=together, on_progress=stopping_at(seed, round))
    rest = study.run(tmp_path / "out", engine=engine)  # how many advance together is kept in the folder
    assert differences(contents(tmp_path / "out"), contents(tmp_path / "whole")) == []
    assert not rest.was_finished
    assert len(rest.models) == 6
    for place, model in whole.models.items():
        assert torch.equal(rest.models[place], model)


class Failing(Sequential):
    """An engine with a mistake that shows when one round is trained."""

    def __init__(self, round: int) -> None:
        super().__init__()
        self.round = round

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        if any(isinstance(asked, Train) and asked.round == self.round for _, asked in questions):
            raise KeyError("a mistake of one's own")
        return super().answer(questions)


def test_error_a_mistake_is_the_checkpoints_only_in_the_first_round_after_it(tmp_path: Path) -> None:
    study = Study(**{**SMALL, "seeds": 1})
    for round in (1, 4):  # of a run that has just begun; then beyond its first checkpoint, which is after two rounds
        with pytest.raises(KeyError, match="a mistake of one's own"):
            study.run(tmp_path / "out", engine=Failing(round))
    with pytest.raises(KeyError, match="a mistake of one's own"):  # taken up after round 3, where an arm ended
        study.run(tmp_path / "out", engine=Failing(5))
    with pytest.raises(JournalError, match=r"does not go on from its checkpoint \(KeyError") as told:
        study.run(tmp_path / "out", engine=Failing(5))
    assert isinstance(told.value.__cause__, KeyError)


def test_contract_models_are_kept_with_the_study(tmp_path: Path) -> None:
    study = Study(**SMALL)
    in_memory = study.run(engine="sequential").models
    study.run(tmp_path / "out", engine="sequential")
    loaded = load(tmp_path / "out")
    again = study.run(tmp_path / "out", engine="sequential")
    assert again.was_finished
    assert set(again.models) == set(in_memory)
    for place, model in in_memory.items():
        assert torch.equal(loaded.model(*place), model)
        assert torch.equal(again.models[place], model)
        assert loaded.buffers(*place) is None
    assert ("FedAvg", 99) not in again.models


def test_error_a_model_that_is_not_there(tmp_path: Path) -> None:
    study = Study(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", on_progress=stopping_at(0, 3))
    with pytest.raises(JournalError, match=r"holds no finished run of arm 'FedAvg' with seed 0. See .runs for what"):
        load(tmp_path / "out").model("FedAvg", 0)
    with pytest.raises(JournalError, match="was kept in memory, and its models in the models of its result"):
        Study(**{**SMALL, "rounds": 1, "arms": ()}).run().loaded.model("study", 0)


def test_contract_a_study_goes_on_the_way_it_was_begun(tmp_path: Path) -> None:
    study, engine = Study(**SMALL), Vectorised()
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine=engine, on_progress=stopping_at(0, 3))
    assert engine.ways
    other = Vectorised()
    other.remembered.known = dict.fromkeys(engine.ways, Way(False, 1, 1, 1))  # what another process has measured
    study.run(tmp_path / "out", engine=other)
    assert {key: other.ways[key] for key in engine.ways} == engine.ways


def test_contract_other_circumstances_are_noted(tmp_path: Path) -> None:
    study = Study(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine="sequential", on_progress=stopping_at(0, 3))
    with pytest.warns(UserWarning, match=r"goes on in other circumstances \(engine was sequential and is vectorised"):
        study.run(tmp_path / "out", engine="vectorised")


def test_identity_the_study_in_a_folder_is_the_study(tmp_path: Path) -> None:
    study = Study(**SMALL)
    study.run(tmp_path / "out")
    back = study_of(load(tmp_path / "out").study["config"], "out")
    assert resolved(back) == resolved(study)
    assert back == study


def test_error_parts_made_in_python_cannot_come_from_a_folder() -> None:
    study = Study(**{**SMALL, "model": torch.nn.Linear(64, 10)})
    with pytest.raises(
        ConfigError, match=r"study in runs/x has parts that were made in Python.*Go on with it in Python"
    ):
        study_of(resolved(study), "runs/x")


@pytest.fixture
def _ctrl_c_raises() -> Iterator[None]:
    """As at a terminal; what runs in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_contract_the_first_ctrl_c_asks_and_the_second_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with asked_to_stop() as is_asked:
        assert not is_asked()
        with pytest.warns(UserWarning, match="finished and saved first; Ctrl-C once more stops at once"):
            signal.raise_signal(signal.SIGINT)
        assert is_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_contract_a_study_in_memory_stops_at_once() -> None:
    with asked_to_stop(can_be_saved=False), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_contract_a_handler_of_ones_own_is_left_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with warnings.catch_warnings(), asked_to_stop() as is_asked:
            signal.raise_signal(signal.SIGINT)
            assert not is_asked()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
