"""Learning-rate schedules: by hand, in a run, and when clients arrive."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.local_claims import moved, view
from tests.support.tasks import quadratic_task
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD, Adam
from turnout.local.schedule import Constant, Exponential, Inverse, Step


def factors(schedule: Any, rounds: int = 6) -> list[float]:
    return [schedule.factor(t) for t in range(1, rounds + 1)]


def test_golden_factors_by_hand() -> None:
    assert factors(Constant()) == [1] * 6
    assert factors(Inverse(), 4) == [1, 1 / 2, 1 / 3, 1 / 4]
    assert factors(Step(milestones=(3, 5), scale=0.5)) == [1, 1, 0.5, 0.5, 0.25, 0.25]  # cut, and stays cut
    assert factors(Exponential(decay=0.5), 3) == [1, 0.5, 0.25]
    assert factors(Exponential(decay=0.5, from_start=True), 3) == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("schedule", [Inverse(), Step(milestones=(2, 9)), Exponential(decay=0.9)])
@given(round=st.integers(1, 500))
def test_property_rates_are_positive_and_never_rise(schedule: Any, round: int) -> None:
    assert schedule.factor(round) >= schedule.factor(round + 1) > 0


@pytest.mark.parametrize("solver", [SGD, Adam])
def test_contract_the_rate_counts_rounds_since_the_schedule_last_began(solver: type[Any]) -> None:
    local = solver(lr=0.6, steps=1, schedule=Inverse())
    two = np.array([0, 1])
    assert local.settings(two, view(3, clients=2))["lr"].tolist() == pytest.approx([0.2, 0.2])
    assert local.settings(two, view(3, clients=2, restart=2))["lr"].tolist() == [0.6, 0.6]


def test_golden_a_run_under_one_over_t(any_engine: Callable[[], Engine]) -> None:
    # F = −x: round t moves by 2·η/t, so three rounds by 2·0.6·(1 + ½ + ⅓)
    task = quadratic_task([0.0], [[1.0]], [1])
    local = SGD(lr=0.6, steps=2, batches="full", schedule=Inverse())
    assert float(moved(task, local, 3, any_engine())) == pytest.approx(1.2 * (1 + 1 / 2 + 1 / 3), abs=1e-12)


def test_golden_the_work_of_a_pull_is_measured_at_the_rate_of_the_round() -> None:
    # α = η_t μ: 0.5 in round 1, 0.25 in round 2; ‖a‖₁ of two steps is 2 − α
    local = SGD(lr=0.5, steps=2, prox_strength=1.0, schedule=Inverse())
    works = [local.local_work(np.array([2]), local.settings(np.array([0]), view(t)))[0] for t in (1, 2)]
    assert works == pytest.approx([1.5, 1.75])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step(milestones=(5, 3)), r"milestones that ascend; got \[5, 3\]\. Change local\.schedule"),
        (lambda: Step(milestones=(0, 3)), r"milestones >= 1; got 0"),
        (lambda: Step(milestones=(3,), scale=0), r"scale in \(0, 1\]; got 0\. Change local\.schedule\.scale"),
        (lambda: Exponential(decay=1.5), r"decay in \(0, 1\]; got 1\.5\. Change local\.schedule\.decay"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
