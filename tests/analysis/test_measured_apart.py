"""Arms whose accuracy is of clients' own models on hold-outs are not compared with arms on the test set."""

from pathlib import Path
from typing import Any

import pytest

import turnout as to
from tests.support.command import Turnout
from turnout.analysis.compare import compare
from turnout.analysis.seed_plan import seed_plan
from turnout.errors import JournalError, StudyNote
from turnout.metrics import MEASURED_ON, OF_SHARED_LAYERS, ON_HOLDOUTS, ON_TEST_SET
from turnout.study import Study

ARMS: dict[str, Any] = {
    "FedAvg": {},
    "COMET": to.algorithms.comet(distil_steps=1),
    "Ditto": to.algorithms.ditto(),
    "alone": to.algorithms.comet(strength=0.0),
}
LAYERS: dict[str, Any] = {
    "FedPer": to.algorithms.fedper(keep=("1.bias",)),
    "FedBABU": to.algorithms.fedbabu(keep=("1.bias",)),
}


def study(*names: str, **more: Any) -> Study:
    data = to.data.Digits(clients=6, holdout=0.25, public_samples=20)
    arms = tuple(to.arm(name, **(ARMS | LAYERS)[name]) for name in names)
    local = to.local.SGD(lr=0.1, batch_size=10, steps=3)
    return Study(data=data, model=to.models.Softmax(), local=local, arms=arms, rounds=2, seeds=2, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(study(*ARMS).run(tmp_path_factory.mktemp("apart") / "out").folder or "")


def test_contract_the_journal_says_what_each_run_is_measured_on(folder: Path) -> None:
    runs = to.load(folder).runs
    found = {arm: facts[MEASURED_ON] for arm, facts in zip(runs["arm"], runs["facts"], strict=True)}
    assert found == {"FedAvg": ON_TEST_SET, "Ditto": ON_TEST_SET, "COMET": ON_HOLDOUTS, "alone": ON_HOLDOUTS}


def test_contract_shared_layers_with_untrained_ones_are_not_compared_with_a_whole_model() -> None:
    loaded = study("FedAvg", *LAYERS).run(progress=False).loaded
    found = {arm: facts[MEASURED_ON] for arm, facts in zip(loaded.runs["arm"], loaded.runs["facts"], strict=True)}
    assert found == {"FedAvg": ON_TEST_SET, "FedPer": OF_SHARED_LAYERS, "FedBABU": ON_TEST_SET}


def test_contract_own_models_that_are_not_measured_are_noted() -> None:
    data = to.data.Digits(clients=6)
    local = to.local.SGD(lr=0.1, batch_size=10, steps=1)
    arms = (to.arm("a", personal=to.personal.Ditto()),)
    some = Study(data=data, model=to.models.Softmax(), local=local, arms=arms, rounds=1)
    with pytest.warns(StudyNote, match=r"digits has no hold-outs: .* not measured\. Set data\.holdout = 0\.2"):
        some.run(progress=False)


@pytest.mark.parametrize(
    ("baseline", "others", "apart"),
    [("FedAvg", ["Ditto"], ["COMET", "alone"]), ("COMET", ["alone"], ["FedAvg", "Ditto"])],
)
def test_contract_only_arms_that_are_measured_alike_are_compared(
    folder: Path, baseline: str, others: list[str], apart: list[str]
) -> None:
    found = compare(to.load(folder), baseline=baseline)
    rows = {row.arm: row for row in found.rows}
    for arm in others:
        assert rows[arm].difference is not None
        assert rows[arm].to_target
    for arm in apart:
        assert (rows[arm].difference, dict(rows[arm].to_target)) == (None, {})
        assert any(note.startswith(f"{arm}: not compared: its accuracy is of ") for note in found.notes)
        assert arm not in found.verdict()
    best = max(rows[arm].final.mean or 0.0 for arm in (baseline, *others))
    assert found.target is not None
    assert found.target.value == pytest.approx(0.95 * best)
    assert "not compared" in found.text()


def test_contract_a_metric_of_the_same_kind_is_compared() -> None:
    found = compare(study("COMET", "Ditto").run().loaded, metric="personal_accuracy")
    assert found.rows[1].difference is not None
    assert not any("not compared" in note for note in found.notes)


def test_contract_seeds_are_planned_for_comparable_pairs_alone(folder: Path) -> None:
    plan = seed_plan(to.load(folder))
    assert {(pair.arm, pair.other) for pair in plan.pairs} == {("Ditto", "FedAvg"), ("alone", "COMET")}
    assert plan.comparisons == 1


def test_contract_with_nothing_alike_nothing_is_compared(turnout: Turnout, tmp_path: Path) -> None:
    result = study("FedAvg", "COMET").run(tmp_path / "out")
    sentence = "No arm is measured as the baseline FedAvg is, so nothing can be compared."
    assert result.comparison().verdict() == sentence
    with pytest.raises(
        JournalError, match=r"No two arms can be compared. COMET: its accuracy is of clients' own models"
    ):
        seed_plan(result.loaded)
    turnout("report", str(tmp_path / "out"), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert sentence in page
    assert "0 other arms compared with it" in page
