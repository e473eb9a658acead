"""A search changes no result but by rounding, and a study that is resumed runs every round as it was run before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.engine_requests import answered, offset_of, request
from tests.support.tasks import blob_task
from turnout import load
from turnout.checkpoint import Checkpoint
from turnout.data import Digits
from turnout.engine import Vectorised, Watch
from turnout.engine.vectorised import search
from turnout.engine.vectorised.autotune import Execution, Remembered, execution_of
from turnout.engine.vectorised.search import SEEN
from turnout.engine.vectorised.tuning import GUESSED, REMEMBERED, SEARCHING, Tuning, describe, tuning_of
from turnout.local import SGD
from turnout.models import MLP
from turnout.requests import Record
from turnout.selection import Uniform
from turnout.study import Study

A, B = Execution(True, 4, 1, 1), Execution(True, 2, 2, 1)
STUDY: dict[str, Any] = {
    "data": Digits(clients=12),
    "model": MLP(hidden=(8,)),
    "local": SGD(lr=0.2, batch_size=16, steps=2),
    "selection": Uniform(cohort_size=8),
    "rounds": 14,
    "checkpoint": Checkpoint(rounds=4),
}


@pytest.fixture
def _any_work_is_worth_a_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(search, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(search, "SHARE", 1e9)
    monkeypatch.setattr(search, "FAR", 1e9)


def searching() -> tuple[Tuning, Watch, list[Execution]]:
    """Return a tuning that may search, and what it remembers."""
    kept: list[Execution] = []
    return Tuning(A).searching([A, B], kept.append), Watch(rounds_ahead=1e9), kept


def run_rounds(tuning: Tuning, watch: Watch, rounds: range) -> list[Execution]:
    """Run rounds in which A takes twice as long as B, and return the way of each."""
    ways = []
    for round in rounds:
        way = tuning.trial(watch, round).execution
        tuning.add(way, 2.0 if way == A else 1.0, 1)
        ways.append(way)
    return ways


def test_contract_a_search_settles_is_remembered_and_says_why() -> None:
    tuning, watch, kept = searching()
    ways = run_rounds(tuning, watch, range(1, 8))
    assert ways == [A] * SEEN + [B] * (7 - SEEN)
    assert (tuning.execution, tuning.is_settled, kept) == (B, True, [B])
    assert tuning.rounds == {(0, 1): A, (0, 2): A}
    assert tuning.why == "chosen from 2 ways in 0.0 s"
    assert describe({"k": tuning.plain()}) == "stacked, blocks of 2, 2 workers; chosen from 2 ways in 0.0 s"


def test_contract_a_short_study_runs_on_the_guess_and_writes_no_rounds() -> None:
    tuning, _, kept = searching()
    watch = Watch(rounds_ahead=3.0)
    begun = tuning.plain()
    assert run_rounds(tuning, watch, range(1, 8)) == [A] * 7
    assert tuning.plain() == begun == {**tuning_of(begun).plain()}
    assert (tuning.why, tuning.is_settled, tuning.rounds, kept) == (GUESSED, False, {}, [])


@pytest.mark.parametrize("written", range(1, 7))
@pytest.mark.parametrize("saved", range(6))
def test_identity_rounds_after_a_checkpoint_run_as_they_were_run(written: int, saved: int) -> None:
    """The journal holds what was known after `written` rounds; the study goes on after the round that was saved."""
    tuning, watch, _ = searching()
    before = run_rounds(tuning, watch, range(1, written + 1))
    again = tuning_of(tuning.plain())
    if not again.is_settled:
        again.searching([A, B], lambda _: None)
    assert run_rounds(again, watch, range(saved + 1, written + 1)) == before[saved:]


def test_contract_rounds_of_another_run_group_run_as_was_settled_on() -> None:
    tuning, watch, _ = searching()
    run_rounds(tuning, watch, range(1, 8))
    watch.group = 1
    assert run_rounds(tuning, watch, range(1, 3)) == [B, B]


def test_contract_two_questions_of_a_round_run_the_same_way() -> None:
    tuning, watch, _ = searching()
    for round in range(1, 6):
        first = tuning.trial(watch, round).execution
        tuning.add(first, 2.0 if first == A else 1.0, 1)
        assert tuning.trial(watch, round).execution == first


@pytest.mark.usefixtures("_any_work_is_worth_a_search")
def test_engine_a_search_changes_no_answer() -> None:
    task, local = blob_task(9), SGD(lr=0.1, batch_size=4, steps=5, control="average")
    engine, fixed = Vectorised("cpu"), Vectorised("cpu", block=9)
    engine.watch.rounds_ahead = 1e9
    ways, wanted = set(), request(task, None, local, offset=offset_of(task, 0))
    expected = answered(fixed, task, wanted)
    for group in range(200):
        engine.watch.group = group
        found = answered(engine, task, wanted)
        ways |= set(next(iter(engine.tunings.values())).rounds.values())
        for what in ("delta", "next_rows"):
            assert torch.allclose(getattr(found, what), getattr(expected, what), rtol=0, atol=1e-12)
        if not engine.is_searching:
            break
    assert len(ways) > 1
    assert not engine.is_searching
    (key,) = engine.tunings
    assert Remembered().known == {key: engine.tunings[key].execution}
    later = Vectorised("cpu")
    answered(later, task, wanted)
    assert (later.tunings[key].why, later.is_searching) == (REMEMBERED, False)


@pytest.mark.usefixtures("_any_work_is_worth_a_search")
def test_engine_a_round_that_takes_too_long_is_run_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FAR", 0.0)  # whatever is tried is given up at its first batch
    task, engine = blob_task(9), Vectorised("cpu")
    engine.watch.rounds_ahead = 1e9
    wanted = request(task, np.full(9, 1 / 9))
    expected = answered(engine, task, wanted)
    for group in range(50):
        engine.watch.group = group
        assert torch.equal(answered(engine, task, wanted).reduced, expected.reduced)  # the guess, bit for bit
    (tuning,) = engine.tunings.values()
    assert tuning.is_settled
    assert all(way == tuning.execution for way in tuning.rounds.values())


def stop_after(round: int, seen: dict[int, Any]) -> Any:
    def stop(arm: str, seed: int, record: Record) -> None:
        seen[record.round] = record.state.model.clone()
        if record.round == round:
            raise KeyboardInterrupt

    return stop


@pytest.mark.usefixtures("_any_work_is_worth_a_search")
@pytest.mark.parametrize("stopped", [3, 6, 7, 9])
def test_identity_a_study_resumed_during_a_search_repeats_its_rounds_bit_for_bit(tmp_path: Path, stopped: int) -> None:
    before: dict[int, Any] = {}
    after: dict[int, Any] = {}
    study = Study(**STUDY)
    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine=Vectorised("cpu"), on_progress=stop_after(stopped, before))
    (known,) = load(tmp_path / "out").study["facts"]["tuning"].values()
    ways = {execution_of(way) for _, _, way in known["rounds"]} | {execution_of(known)}
    assert len(ways) > 1
    study.run(tmp_path / "out", engine=Vectorised("cpu"), on_progress=stop_after(-1, after))
    repeated = sorted(before.keys() & after.keys())
    assert len(repeated) == (stopped - 1 if stopped < 4 else stopped % 4)  # after the checkpoint of round 1, 4 or 8
    assert all(torch.equal(before[round], after[round]) for round in repeated)
    assert max(after) == STUDY["rounds"]


def test_contract_another_study_on_the_same_engine_keeps_the_way_but_not_its_rounds(tmp_path: Path) -> None:
    engine = Vectorised("cpu")
    engine.tunings["k"] = Tuning(B, SEARCHING, rounds={(0, 1): A})
    engine.use_tuning({})
    assert engine.tuning()["k"]["rounds"] == []


def test_contract_the_command_says_how_it_ran(turnout: Any, tmp_path: Path) -> None:
    local = "local = { lr = 0.1, batch_size = 8, steps = 1 }"
    (tmp_path / "s.toml").write_text(f'rounds = 2\ndata.use = "digits"\nmodel.use = "softmax"\n{local}\n')
    said = turnout("run", tmp_path / "s.toml", "--out", tmp_path / "out")
    assert said.code == 0
    (line,) = [line for line in said.out.splitlines() if line.startswith("ran ")]
    assert line == f"ran {describe(load(tmp_path / 'out').study['facts']['tuning'])}"
    assert line.endswith("; guessed from its shapes")
