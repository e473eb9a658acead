"""Seeds that are added until every difference is clear: which are run, that they resume, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

import turnout as to
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.study import load_study, resolved_settings, study_of
from turnout.study.interruption import Stopped
from turnout.study.progress import ProgressBoard


def study(*, other_lr: float, seeds: int = 4, most: int = 9, **more: Any) -> to.Study:
    """A study of two arms on digits; with learning rates far apart, the first look tells them apart."""
    return to.Study(
        data=to.data.Digits(clients=8),
        model=to.models.Softmax(),
        local=to.local.SGD(lr=0.1, batch_size=16, epochs=1),
        rounds=3,
        seeds=seeds,
        until_clear=to.UntilClear(most=most),
        arms=(to.arm("fast"), to.arm("other", local={"lr": other_lr})),
        **more,
    )


def seeds_of(loaded: Any) -> list[int]:
    return sorted(set(loaded.runs["seed"]))


def test_golden_a_clear_difference_ends_after_the_first_look() -> None:
    result = study(other_lr=1e-4).run(progress=False)
    assert seeds_of(result.loaded) == [0, 1, 2, 3]
    difference = result.comparison().rows[1].difference
    assert difference is not None
    assert difference.is_clear
    assert "looks at 4, 6, 9 seeds (Pocock's boundary)" in result.table()


def test_golden_a_difference_that_stays_open_takes_the_most_seeds(tmp_path: Path) -> None:
    nearly = study(other_lr=0.105)
    result = nearly.run(tmp_path / "out", progress=False)
    assert seeds_of(result.loaded) == list(range(9))
    assert "not settled" in result.verdict()
    again = nearly.run(tmp_path / "out", progress=False)
    assert again.was_finished
    assert seeds_of(again.loaded) == list(range(9))


def test_identity_a_study_that_was_stopped_goes_on_to_the_same_results(tmp_path: Path) -> None:
    nearly = study(other_lr=0.105)
    whole = nearly.run(tmp_path / "whole", progress=False)
    count = 0

    def stop(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == 45:  # in the second look: the first has 4 seeds, 2 arms and 4 records each
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Stopped)):
        nearly.run(tmp_path / "parts", progress=False, on_progress=stop)
    assert len(load(tmp_path / "parts").finished) < 18
    resumed = study_of(load(tmp_path / "parts").study["config"], "parts")
    parts = resumed.run(tmp_path / "parts", progress=False)
    assert parts.table() == whole.table()
    assert [str(group) for group in whole.loaded.runs["rounds"]] == [
        str(group) for group in parts.loaded.runs["rounds"]
    ]


def test_identity_the_runs_of_added_seeds_are_those_of_a_fixed_study(tmp_path: Path) -> None:
    added = study(other_lr=0.105).run(progress=False).loaded.rounds
    fixed = to.Study(
        data=to.data.Digits(clients=8),
        model=to.models.Softmax(),
        local=to.local.SGD(lr=0.1, batch_size=16, epochs=1),
        rounds=3,
        seeds=9,
        arms=(to.arm("fast"), to.arm("other", local={"lr": 0.105})),
    )
    plain = fixed.run(progress=False).loaded.rounds
    assert added["loss"].to_numpy() == pytest.approx(plain["loss"].to_numpy(), abs=1e-5)


def test_contract_who_runs_it_may_decide_when_it_is_enough() -> None:
    looks: list[int] = []

    def enough(loaded: Any) -> bool:
        looks.append(len(seeds_of(loaded)))
        return len(looks) == 2

    result = study(other_lr=1e-4).run(progress=False, enough=enough)
    assert looks == [4, 6]
    assert seeds_of(result.loaded) == list(range(6))


def test_contract_a_file_a_dict_and_a_value_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'rounds = 3\nseeds = 4\nuntil_clear = { most = 9 }\nmodel = "softmax"\ndata = { use = "digits", clients = 8 }\n'
        'local = { lr = 0.1, batch_size = 16, epochs = 1 }\n[[arm]]\nname = "fast"\n[[arm]]\nname = "other"\n'
        "local = { lr = 0.01 }\n"
    )
    loaded = load_study(file)
    assert loaded.until_clear == to.UntilClear(most=9)
    assert resolved_settings(loaded)["until_clear"] == {"most": 9}
    assert resolved_settings(study(other_lr=0.01, name="study")) == resolved_settings(loaded)
    assert study_of(resolved_settings(loaded), "x").until_clear == to.UntilClear(most=9)
    assert load_study(file, ["until_clear.most=12"]).until_clear == to.UntilClear(most=12)
    assert load_study(file, ["until_clear=none"]).until_clear is None


def test_golden_the_number_of_seeds_is_a_range() -> None:
    value = study(other_lr=0.01)
    assert repr(value) == "Study('study': 2 arms x 4 to 9 seeds, 3 rounds)"
    board = ProgressBoard(value, "here")
    assert board.title == "study   2 arms x 4 to 9 seeds   3 rounds   here"
    assert (board.seeds, board.runs) == (4, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 2}, r"until_clear needs 3 to 9 seeds \(until_clear.most\) for its first look; got 2. Change seeds"),
        ({"seeds": 12}, r"needs 3 to 9 seeds .*; got 12"),
        ({"arms": ()}, r"until the arms of a study are told apart; got 1 arm. Add an \[\[arm\]\]"),
        ({"until_clear": 7}, r"until_clear needs a UntilClear; got 7"),
    ],
)
def test_error_a_study_that_cannot_add_seeds_says_why(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "data": to.data.Digits(clients=8),
        "model": to.models.Softmax(),
        "local": to.local.SGD(lr=0.1, epochs=1),
        "rounds": 3,
        "seeds": 4,
        "until_clear": to.UntilClear(most=9),
        "arms": (to.arm("a"), to.arm("b", local={"lr": 0.2})),
    }
    with pytest.raises(ConfigError, match=message):
        to.Study(**(given | change))
