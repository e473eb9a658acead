"""Concept drift: labels by hand, change points and their file, and who has which samples when."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Turnout
from turnout.data import ConceptDrift
from turnout.data.change_points import MOST_BYTES, PATTERNS, pattern_concepts, read_concepts
from turnout.data.concept_drift import circle_labels, sea_labels, sine_labels
from turnout.data.digest import federation_digest
from turnout.data.federation import Held, positions
from turnout.data.mnist_drift import swapped
from turnout.drift import Drift
from turnout.errors import ConfigError, DataError
from turnout.streams import Streams


def test_golden_labels_by_hand() -> None:
    points = np.array([[0.5, 0.4], [0.5, 0.5], [0.2, 0.6], [0.6, 0.7]])  # the sine is 0.479, 0.479, 0.199 and 0.565
    assert sine_labels(points, 0).tolist() == [True, False, False, False]
    assert sine_labels(points, 1).tolist() == [False, True, True, True]
    assert circle_labels(points, 0).tolist() == [True, True, False, True]  # (0.2, 0.6) is 0.1 from (0.2, 0.5)
    assert circle_labels(points, 1).tolist() == [False, False, True, False]
    sums = np.array([[3.0, 4.5, 9.0], [4.0, 4.0, 0.0], [4.5, 4.6, 0.0], [9.0, 0.6, 1.0]])  # 7.5, 8, 9.1, 9.6
    assert [sea_labels(sums, concept).sum() for concept in range(4)] == [2, 2, 0, 3]


def test_golden_swapped_labels() -> None:
    digits = np.arange(10)
    assert swapped(digits, 0).tolist() == digits.tolist()
    assert swapped(digits, 1).tolist() == [0, 2, 1, 3, 4, 5, 6, 7, 8, 9]
    assert swapped(digits, 3).tolist() == [0, 1, 2, 3, 4, 6, 5, 7, 8, 9]


def test_golden_time_steps_of_rounds() -> None:
    drift = Drift(np.ones((2, 4), dtype=np.int64), np.zeros((2, 4), dtype=np.int64), rounds_per_step=3)
    assert [drift.time_step(round) for round in range(10)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [drift.measured_step(round) for round in range(10)] == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert drift.most_rounds == 9


def test_golden_rows_of_blocks() -> None:
    drift = Drift(np.array([[2, 1, 3], [1, 2, 1]]), np.zeros((2, 3), dtype=np.int64), rounds_per_step=1)
    blocks = np.array([[True, False, True], [False, True, False]])
    assert drift.rows(np.array([0, 1]), blocks).tolist() == [0, 1, 3, 4, 5, 7, 8]
    assert drift.counts(np.array([0, 1]), blocks).tolist() == [5, 2]
    assert drift.rows(np.array([1]), blocks[:1]).tolist() == [6, 9]


def test_stages_have_the_samples_so_far_and_hold_out_the_next() -> None:
    federation = ConceptDrift(samples=5, rounds_per_step=2, time_steps=3).build(Streams(0))
    assert federation.drift is not None
    assert [federation.at(round).sizes[0] for round in range(7)] == [5, 5, 5, 10, 10, 15, 15]
    assert isinstance(federation.train, Held)
    for round, step in ((0, 0), (1, 1), (2, 1), (3, 2), (6, 3)):
        stage = federation.at(round)
        assert stage.holdout is not None
        assert positions(stage.holdout.fetch(np.array([7]))).tolist() == list(range(140 + 5 * step, 145 + 5 * step))
        assert stage.holdout.x is federation.train.x
    test = federation.at(6).test
    assert test is not None
    assert len(test) == 50


def test_labels_follow_the_concepts() -> None:
    federation = ConceptDrift(samples=20).build(Streams(3))
    assert federation.drift is not None
    assert isinstance(federation.train, Held)
    x, y = (tensor.numpy().reshape(10, 11, 20, -1) for tensor in (federation.train.x, federation.train.y))
    for (client, step), concept in np.ndenumerate(federation.drift.concepts):
        assert np.array_equal(y[client, step, :, 0], sine_labels(x[client, step].astype(np.float64), int(concept)))


def test_the_seed_and_the_change_points_decide_the_data() -> None:
    data = ConceptDrift(samples=5)
    assert federation_digest(data.build(Streams(0))) == federation_digest(data.build(Streams(0)))
    assert federation_digest(data.build(Streams(0))) != federation_digest(data.build(Streams(1)))
    slower = ConceptDrift(samples=5, rounds_per_step=11)
    assert federation_digest(data.build(Streams(0))) != federation_digest(slower.build(Streams(0)))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_contract_a_pattern_has_ten_clients_and_ten_time_steps_and_one(pattern: str) -> None:
    concepts = pattern_concepts(pattern)
    assert concepts.shape == (10, 11)
    assert len(np.unique(concepts)) == (2 if pattern == "A" else 4)


def test_a_file_is_one_line_per_time_step(tmp_path: Path) -> None:
    file = tmp_path / "changes.csv"
    file.write_text("# three clients\n0,0,0\n\n0,1,0  # the second changes\n1 1 0\n")
    assert read_concepts(file).tolist() == [[0, 0, 1], [0, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0\n0 x\n", "changes.cp:2: a line needs one concept number, from 0 to 999, .* got '0 x'"),
        ("# two clients\n\n0 0\n0\n", "changes.cp:4: .* for each of the 2 clients; got '0'. Write 2 whole numbers"),
        ("0 0\n0 1000\n", "changes.cp:2: .* got '0 1000'"),
        ("0 0\n0 -1\n", "changes.cp:2: .* got '0 -1'"),
        (f"0 0\n0 {'1' * 5000}\n", "changes.cp:2: "),
        ("", "got 0. Add lines"),
        ("0 0\n", "got 1. Add lines"),
        ("0 2\n0 0\n", "sine has 2 concepts, from 0 to 1; the change points name concept 2"),
    ],
)
def test_error_a_bad_file_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "changes.cp"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        ConceptDrift(change_points=file).build(Streams(0))


def test_error_more_time_steps_than_change_points() -> None:
    with pytest.raises(ConfigError, match="sine needs time_steps <= 10, which its change points have; got 11"):
        ConceptDrift(time_steps=11).build(Streams(0))


STUDY = """\
rounds = 4
model  = "softmax"
local  = {{ lr = 0.1, steps = 1 }}

[data]
use             = "{data}"
rounds_per_step = 2
change_points   = "my.cp"
{more}"""
IN_CHECK: dict[str, tuple[str | None, str, int, str]] = {  # the file, more of the study, its line, and the message
    "no file": (None, "", 8, "The change points in my.cp cannot be read: "),
    "a word": (
        "0 0\n0 one\n0 1\n",
        "",
        8,
        "my.cp:2: a line needs one concept number, from 0 to 999, for each of the 2",
    ),
    "too few lines": ("0 0\n", "", 8, "my.cp needs a line for each time step, and one more for the samples after"),
    "another concept": ("0 0\n0 9\n0 1\n", "", 8, "the change points name concept 9"),
    "too many time steps": ("0 0\n0 1\n0 1\n", "time_steps = 3\n", 9, "needs time_steps <= 2, which its change points"),
    "too many rounds": ("0 0\n0 1\n", "", 1, "which is 2 rounds; got rounds = 4. Set rounds to 2 or less"),
    "too few models": (
        "0 0\n0 1\n0 1\n",
        '\n[assignment]\nuse = "concept"\nnum_models = 1\n',
        12,
        "Concept needs a model for each of the 2 concepts of the data; got num_models = 1",
    ),
    "a requirement that is measured once": (
        "0 0\n0 1\n0 1\n",
        '\n[aggregation]\nuse = "appeal"\n',
        10,
        "Set aggregation.requirement to a number.",
    ),
}


@pytest.mark.parametrize("data", ["concept-drift", "mnist-drift"])
@pytest.mark.parametrize("name", IN_CHECK)
def test_error_check_reads_the_change_points(name: str, data: str, turnout: Turnout) -> None:
    changes, more, line, message = IN_CHECK[name]
    if changes is not None:
        Path("my.cp").write_text(changes)
    Path("study.toml").write_text(STUDY.format(data=data, more=more))
    said = turnout("check", "study.toml")
    assert said.code == 2
    assert any(text.startswith(f"study.toml:{line}: ") and message in text for text in said.err.splitlines()), said.err


def test_error_change_points_that_are_no_file_or_too_long(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: it is no regular file. Change data.change_points"):
        read_concepts(tmp_path)
    (tmp_path / "long.cp").write_text("#" * (MOST_BYTES + 1))
    with pytest.raises(DataError, match=r"has more than 4,194,304 bytes, too many for change points. Name another"):
        read_concepts(tmp_path / "long.cp")


@pytest.mark.parametrize("data", ["concept-drift", "mnist-drift"])
def test_contract_check_takes_change_points_that_suit(data: str, turnout: Turnout) -> None:
    Path("my.cp").write_text("0 0\n0 1\n1 1\n")
    rule = '\n[assignment]\nuse = "drift"\nnum_models = 2\n'
    Path("study.toml").write_text(STUDY.format(data=data, more=rule))
    assert turnout("check", "study.toml").code == 0
