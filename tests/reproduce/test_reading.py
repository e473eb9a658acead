"""Curves as arrays, and the claims of studies on curves made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from turnout.errors import JournalError
from turnout.journal.load import Loaded
from turnout.reproduce.reading import Rounds, at, average, clients, curve, final, rounds_to
from turnout.reproduce.studies.power_of_choice import worst_tenth
from turnout.reproduce.studies.ruan_table4 import PATIENCE, regained
from turnout.reproduce.studies.ruan_table5 import crossed, jump, trend

Curves = dict[str, list[list[float]]]  # by arm: one curve per seed


def by_hand(curves: Curves, metric: str = "accuracy", config: dict[str, Any] | None = None) -> Loaded:
    """Return a study with these curves, measured from round 0 on."""
    rows = [
        {"arm": arm, "seed": seed, "round": round, "evaluated": True, metric: value}
        for arm, seeds in curves.items()
        for seed, values in enumerate(seeds)
        for round, value in enumerate(values)
    ]
    runs = [{"arm": arm, "seed": seed} for arm, seeds in curves.items() for seed in range(len(seeds))]
    return Loaded(
        study={"name": "by hand", "config": config or {}},
        runs=pd.DataFrame(runs),
        rounds=pd.DataFrame(rows),
        metrics=(metric,),
        source=Path(),
    )


TWO = by_hand({"a": [[0.1, 0.5, 0.7, 0.6], [0.2, 0.3, 0.4, 0.9]]})


def test_golden_a_curve_has_a_row_per_seed() -> None:
    rounds, values = curve(TWO, "a")
    assert rounds.tolist() == [0, 1, 2, 3]
    assert values.tolist() == [[0.1, 0.5, 0.7, 0.6], [0.2, 0.3, 0.4, 0.9]]
    assert final(TWO, "a").tolist() == [0.6, 0.9]
    assert at(TWO, "a", 1).tolist() == [0.5, 0.3]
    assert at(TWO, "a", 99).tolist() == [0.6, 0.9]
    assert average(TWO, "a", last=2) == pytest.approx([0.65, 0.65])


def test_golden_rounds_to_a_target_are_one_past_the_end_where_it_is_never_reached() -> None:
    found = rounds_to(TWO, "a", 0.65)
    assert (found.rounds.tolist(), found.never.tolist()) == ([2, 3], [False, False])
    some = rounds_to(TWO, "a", np.array([0.95, 0.3]))
    assert (some.rounds.tolist(), some.never.tolist()) == ([4, 1], [True, False])
    falls = rounds_to(TWO, "a", 0.15, rises=False)
    assert (falls.rounds.tolist(), falls.never.tolist()) == ([0, 4], [False, True])
    ratio, never = some.ratio(falls)  # a target that is met at the start counts as one round
    assert (ratio.tolist(), never.tolist()) == ([4.0, 0.25], [True, True])


def test_error_an_arm_that_was_not_measured_is_named() -> None:
    with pytest.raises(JournalError, match=r"Arm 'b' has no measurement of accuracy\. The arms are a"):
        curve(TWO, "b")


def test_golden_the_accuracy_of_clients_is_that_after_the_last_round() -> None:
    frame = pd.DataFrame(
        [
            ("a", 0, round, client, value)
            for round, client, value in ((1, 0, 0.1), (1, 1, 0.2), (3, 0, 0.5), (3, 1, 0.9))
        ],
        columns=["arm", "seed", "round", "client", "accuracy"],
    )
    study = by_hand({"a": [[0.0]]})
    study.__dict__["client_accuracy"] = frame  # where the property keeps what it has read
    assert clients(study, "a").tolist() == [[0.5, 0.9]]


def test_golden_the_worst_tenth_is_at_least_one_client() -> None:
    assert worst_tenth(np.array([[0.5, 0.1, 0.9], [1.0, np.nan, 0.8]])).tolist() == [0.1, 0.8]
    assert worst_tenth(np.tile(np.arange(20) / 20, (1, 1))).tolist() == [0.025]


def test_golden_accuracy_is_regained_when_it_is_back_at_that_of_before_the_arrival() -> None:
    study = by_hand({"fast": [[0.1, 0.8, 0.5, 0.8, 0.9], [0.1, 0.8, 0.9, 0.7, 0.7], [0.1, 0.8, 0.5, 0.6, 0.7]]})
    found = regained(study, "fast", 2)
    assert found.rounds.tolist() == [2, 1, PATIENCE + 1]
    assert found.never.tolist() == [False, False, True]


def test_golden_losses_cross_when_excluding_is_no_worse() -> None:
    study = by_hand(
        {"include": [[3, 2.0, 2.0, 2.0, 2.0], [3, 2, 2, 2, 2]], "exclude": [[3, 2.0, 3.0, 2.5, 2.0], [3, 2, 3, 3, 3]]},
        metric="loss",
    )
    found = crossed(study, 2)
    assert (found.rounds.tolist(), found.never.tolist()) == ([3, PATIENCE + 1], [False, True])
    assert jump(study, 2).tolist() == [1.0, 1.0]


def test_golden_a_trend_is_a_rank_correlation_per_seed() -> None:
    times = [np.array([1.0, 3.0, 2.0]), np.array([2.0, 2.0, 2.0]), np.array([5.0, 1.0, 2.0])]
    waits = [Rounds(each, np.zeros(3, dtype=np.bool_)) for each in times]
    assert trend(waits).tolist() == pytest.approx([1.0, -1.0, 0.0])
