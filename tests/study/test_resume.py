"""Taking a study up again in Python: parties, engines, models, and what is said when circumstances have changed."""

import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.support.fault_injection import contents, differences
from tests.support.runs import models_of
from turnout import load
from turnout.aggregation import FedAvg, FedVARP
from turnout.checkpoint import Checkpoint
from turnout.checkpoint.tensor_files import Piece, about_of, write
from turnout.data import Digits, Federation
from turnout.engine import Engine, EngineWrapper, Sequential, Vectorised
from turnout.engine.task import Question
from turnout.engine.vectorised.autotune import Execution
from turnout.errors import ConfigError, JournalError, RunsFailed
from turnout.journal.checksums import update_checksums
from turnout.journal.open_database import open_for_writing
from turnout.local import SGD
from turnout.models import Softmax
from turnout.reproduce.timing import Timed
from turnout.requests import Answer, Evaluate, Fit, Record
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study import Study, arm, resolved_settings, study_of
from turnout.study.interruption import Stopped, handle_signals

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
    ended = models_of(rest)
    assert len(ended) == 6
    for place, model in models_of(whole).items():
        assert torch.equal(ended[place], model)


class Failing(Sequential):
    """An engine with a mistake that shows when one round is trained."""

    def __init__(self, round: int) -> None:
        super().__init__()
        self.round = round

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        if any(isinstance(asked, Fit) and asked.round == self.round for _, asked in questions):
            raise KeyError("a mistake of one's own")
        return super().answer(questions)


@pytest.mark.filterwarnings("ignore:.*failed before and is run again")
def test_error_a_mistake_is_the_checkpoints_only_in_the_first_round_after_it(tmp_path: Path) -> None:
    study = Study(**{**SMALL, "seeds": 1})
    with pytest.raises(KeyError, match="a mistake of one's own"):  # of a run that has just begun
        study.run(tmp_path / "out", engine=Failing(1))
    for round in (4, 5):  # begun again; then taken up after round 3, where the other arm ended
        with pytest.warns(RunsFailed, match='FedAvg, seed 0: KeyError: "a mistake of one\'s own"'):
            study.run(tmp_path / "out", engine=Failing(round))
    with pytest.raises(JournalError, match=r"cannot resume from its checkpoint \(KeyError") as told:
        study.run(tmp_path / "out", engine=Failing(5))
    assert isinstance(told.value.__cause__, KeyError)


def test_contract_models_are_kept_with_the_study(tmp_path: Path) -> None:
    study = Study(**SMALL)
    in_memory = study.run(engine="sequential")
    study.run(tmp_path / "out", engine="sequential")
    loaded = load(tmp_path / "out")
    again = study.run(tmp_path / "out", engine="sequential")
    assert again.was_finished
    assert loaded.finished == in_memory.loaded.finished
    for place in loaded.finished:
        model = in_memory.state_dict(*place)
        for other in (loaded.state_dict(*place), again.state_dict(*place)):
            assert list(other) == list(model)
            assert all(torch.equal(other[name], model[name]) for name in model)


def test_error_a_model_that_is_not_there(tmp_path: Path) -> None:
    study = Study(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", on_progress=stopping_at(0, 3))
    with pytest.raises(JournalError, match=r"no finished run of arm 'FedAvg' with seed 0. Finished runs: FedVARP"):
        load(tmp_path / "out").state_dict("FedAvg", 0)
    in_memory = Study(**{**SMALL, "rounds": 1, "arms": ()}).run()
    with pytest.raises(JournalError, match=r"in memory, holds no .* Finished runs: study with seed 0, 1, 2"):
        in_memory.state_dict("study", 99)
    for seed in ("x", "0", None, 0.5):
        with pytest.raises(ConfigError, match=r"A seed must be a whole number; got .*\. See \.runs for the seeds"):
            in_memory.module("study", seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrapped", [lambda engine: engine, EngineWrapper, Timed], ids=["itself", "passing on", "timed"]
)
def test_contract_a_study_goes_on_the_way_it_was_begun(wrapped: Callable[[Engine], Engine], tmp_path: Path) -> None:
    study, engine = Study(**SMALL), Vectorised()
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine=wrapped(engine), on_progress=stopping_at(0, 3))
    assert engine.tunings
    assert load(tmp_path / "out").study["facts"]["tuning"] == engine.tuning()
    other = Vectorised()
    other.remembered.known = dict.fromkeys(
        engine.tunings, Execution(False, 1, 1, 1)
    )  # what another process has measured
    study.run(tmp_path / "out", engine=wrapped(other))
    assert {key: other.tuning()[key] for key in engine.tuning()} == engine.tuning()


class Elsewhere(Sequential):
    """An engine that says its tensors lie on another device than the CPU."""

    name = "elsewhere"

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu", 0)


def test_contract_a_wrapped_engine_is_asked_for_its_device(tmp_path: Path) -> None:
    Study(**{**SMALL, "seeds": 1}).run(tmp_path / "out", engine=Timed(Elsewhere()))
    facts = load(tmp_path / "out").study["facts"]
    assert (facts["engine"], facts["device"]) == ("elsewhere", "cpu:0")


def test_contract_other_circumstances_are_noted(tmp_path: Path) -> None:
    study = Study(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine="sequential", on_progress=stopping_at(0, 3))
    with pytest.warns(UserWarning, match=r"resumes in another environment \(engine was sequential and is vectorised"):
        study.run(tmp_path / "out", engine="vectorised")


def test_identity_the_study_in_a_folder_is_the_study(tmp_path: Path) -> None:
    study = Study(**SMALL)
    study.run(tmp_path / "out")
    back = study_of(load(tmp_path / "out").study["config"], "out")
    assert resolved_settings(back) == resolved_settings(study)
    assert back == study


def test_identity_a_name_like_a_note_is_only_a_name() -> None:
    study = Study(**{**SMALL, "arms": [arm("(a module made in Python)", rounds=2)]})
    assert study_of(resolved_settings(study), "out") == study


@pytest.mark.parametrize(
    "part",
    [
        {"model": torch.nn.Linear(64, 10)},
        {"model": lambda: torch.nn.Linear(64, 10)},
        {"loss": torch.nn.CrossEntropyLoss(reduction="none")},
        {"arms": [arm("x", model=torch.nn.Linear(64, 10))]},
    ],
)
def test_error_parts_made_in_python_cannot_come_from_a_folder(part: dict[str, Any]) -> None:
    study = Study(**{**SMALL, **part})
    with pytest.raises(ConfigError, match=r"study in runs/x has parts that were made in Python.*Resume it in Python"):
        study_of(resolved_settings(study), "runs/x")


@pytest.fixture
def _ctrl_c_raises() -> Iterator[None]:
    """As at a terminal; what runs in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_contract_the_first_ctrl_c_asks_and_the_second_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with handle_signals(can_be_saved=True) as stop:
        assert not stop.is_asked()
        with pytest.warns(UserWarning, match="ends within 1 s is saved, a longer one is abandoned; Ctrl-C once more"):
            signal.raise_signal(signal.SIGINT)
        assert stop.is_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_contract_a_study_in_memory_stops_at_once() -> None:
    with handle_signals(can_be_saved=False) as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.is_asked()  # so that threads, which no signal reaches, stop too


def test_contract_a_handler_of_ones_own_is_left_alone() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with warnings.catch_warnings(), handle_signals(can_be_saved=True) as stop:
            signal.raise_signal(signal.SIGINT)
            assert not stop.is_asked()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


class Interrupting(EngineWrapper):
    """An engine during whose work a signal comes."""

    def __init__(self, engine: Engine, kind: type, round: int, number: signal.Signals) -> None:
        super().__init__(engine)
        self.when, self.number = (kind, round), number

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        if any((type(asked), asked.round) == self.when for _, asked in questions):
            signal.raise_signal(self.number)
        return super().answer(questions)


WAYS: dict[str, Callable[[], Engine]] = {
    "sequential": Sequential,
    "stacked": lambda: Vectorised("cpu", block=3, workers=1, threads=1),
    "on two threads": lambda: Vectorised("cpu", workers=2, threads=1, stack=False),
    "while ways are timed": Vectorised,
}


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "round", "saved"), [(Fit, 5, "round 4 is saved"), (Evaluate, 0, "no round of these runs is saved")]
)
def test_identity_a_round_that_is_given_up_is_run_again_bit_for_bit(
    way: str, kind: type, round: int, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("turnout.study.interruption.GRACE_SECONDS", 0.0)
    study = Study(**SMALL)
    with (
        pytest.warns(UserWarning, match="a longer one is abandoned"),
        pytest.raises(Stopped, match=f"the round in progress was abandoned; {saved}") as stopped,
    ):
        study.run(tmp_path / "out", engine=Interrupting(WAYS[way](), kind, round, signal.SIGTERM))
    assert stopped.value.exit_code == 143
    assert set(load(tmp_path / "out").runs["status"]) <= {"interrupted", "finished"}
    study.run(tmp_path / "out", engine=WAYS[way]())
    study.run(tmp_path / "whole", engine=WAYS[way]())
    assert differences(contents(tmp_path / "out"), contents(tmp_path / "whole")) == []


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_contract_reading_the_data_of_the_next_runs_is_stopped_at_once(tmp_path: Path) -> None:
    class Interrupted(Digits):
        def build(self, streams: Streams) -> Federation:
            if streams.seed == 1:
                signal.raise_signal(signal.SIGINT)
            return super().build(streams)

    study = Study(**{**SMALL, "data": Interrupted(clients=12)})
    with pytest.raises(Stopped, match="every round that was run is saved") as stopped:
        study.run(tmp_path / "out", together=2)
    assert stopped.value.exit_code == 130
    assert set(load(tmp_path / "out").runs["status"]) == {"finished"}


def test_contract_the_first_checkpoint_is_of_the_first_round(tmp_path: Path) -> None:
    study = Study(**{**SMALL, "checkpoint": Checkpoint(rounds=100), "seeds": 1})
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", on_progress=stopping_at(0, 2))
    ((_, saved, _, _),) = contents(tmp_path / "out")["checkpoint"]
    assert saved == 1
    study.run(tmp_path / "out")
    study.run(tmp_path / "whole")
    assert differences(contents(tmp_path / "out"), contents(tmp_path / "whole")) == []


def forged(folder: Path, *, of_state: dict[str, Any], of_journal: int | None = None) -> None:
    """Change the runs of a folder's checkpoint, and sign that as turnout does."""
    with closing(open_for_writing(folder)) as database:
        ((name,),) = database.execute("SELECT name FROM file WHERE name LIKE 'checkpoints/%'").fetchall()
        with safe_open(folder / name, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            about = about_of(file)
        for rest in about["runs"].values():
            rest.update(of_state)
        stored = write(folder, name, [Piece.of(key, tensor) for key, tensor in tensors.items()], about)
        database.execute("UPDATE file SET sha256 = ?, bytes = ? WHERE name = ?", (stored.sha256, stored.bytes, name))
        update_checksums(database, "file")
        if of_journal is not None:
            database.execute("UPDATE checkpoint SET round = ?", (of_journal,))
            update_checksums(database, "checkpoint")


@pytest.mark.parametrize(
    ("of_state", "of_journal", "why"),
    [
        ({"round": 10**15}, None, "round 1000000000000000 of 6, and the journal says 2"),
        ({"round": 10**15}, 10**15, "round 1000000000000000 of 6, and the journal says 1000000000000000"),
        ({"round": 1}, None, "round 1 of 6, and the journal says 2"),
        ({"restart": 5}, None, "round 2 of 6"),
    ],
)
def test_error_a_signed_checkpoint_of_another_round_is_refused(
    tmp_path: Path, of_state: dict[str, Any], of_journal: int | None, why: str
) -> None:
    study = Study(**{**SMALL, "seeds": 1, "arms": ()})
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", on_progress=stopping_at(0, 3))
    forged(tmp_path / "out", of_state=of_state, of_journal=of_journal)
    with pytest.raises(JournalError, match=rf"holds values that turnout did not write \(ValueError: {why}.*good copy"):
        study.run(tmp_path / "out")
