"""Oort and AFL: what a client is worth, who is explored, and how often each is drawn."""

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import run
from tests.support.selection_asking import Desk, chosen, next_round, view
from tests.support.tasks import blob_task, quadratic_task
from turnout.array_types import Floats, Ids
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.asking import Asker
from turnout.coordinator.compatibility import problems
from turnout.errors import ConfigError
from turnout.fleet import Deadline, Fleet, Fraction
from turnout.local import SGD
from turnout.protocols import Choice, Selection, View
from turnout.selection import AFL, Oort
from turnout.selection.afl import most_valued
from turnout.selection.oort import eligible_positions, speed_factor, statistical_utility
from turnout.streams import Streams

GREEDY = {"exploration": 0.0, "least_exploration": 0.0}


def frequencies(rule: Selection, here: View, pool: Ids, draws: int = 2500, pace: Floats | None = None) -> Floats:
    counts = np.zeros(here.population.num_clients)
    for seed in range(draws):
        counts[chosen(rule, pool, replace(here, streams=Streams(seed)), Desk(pace=pace)).clients] += 1
    return counts / draws


def near(found: Floats, expected: Any, draws: int = 2500) -> bool:
    return np.allclose(found, expected, atol=4 * np.sqrt(0.25 / draws))


# Oort


def test_golden_utilities_by_hand() -> None:
    # n·L = 10, 20, 40; the 95 % quantile of three is 20 + 0.9·20 = 38
    assert np.allclose(statistical_utility(np.array([10, 10, 20]), np.array([1.0, 2.0, 2.0])), [10 / 38, 20 / 38, 1])
    assert np.allclose(statistical_utility(np.array([1, 1, 1]), np.array([1.0, 1.0, np.inf])), 1)
    assert statistical_utility(np.array([3, 4]), np.zeros(2)).tolist() == [1.0, 1.0]
    assert np.allclose(speed_factor(np.array([1.0, 2.0, 4.0]), 2.0, 2.0), [1, 1, 1 / 4])
    # the second largest is 0.8: those with at least 0.76 may be drawn
    assert eligible_positions(np.array([0.77, 0.8, 0.1, 1.0, 0.75]), 2).tolist() == [0, 1, 3]


def test_golden_a_clients_utility_adds_doubt_and_takes_off_slowness() -> None:
    rule, seconds = Oort(cohort_size=1, preferred_seconds=2.0, slow_penalty=1.0), np.array([1.0, 4.0])
    here = view([1, 1], last=[2.0, 2.0], round=9, memory={"last_round": np.array([3, 8])})
    expected = (1 + np.sqrt(0.1 * np.log(9) / np.array([3, 8]))) * [1, 0.5]
    assert np.allclose(rule.utility(np.arange(2), seconds, here), expected)
    careless = Oort(cohort_size=1)  # utility alone, whatever the clock says
    assert np.allclose(careless.utility(np.arange(2), np.ones(2), here), expected / [1, 0.5])


def test_identity_until_somebody_is_heard_from_it_is_uniform() -> None:
    assert near(frequencies(Oort(cohort_size=3), view([1, 9, 5, 2, 7, 3]), np.arange(6)), 1 / 2)


def test_property_explored_clients_are_drawn_by_speed() -> None:
    rule, pace = Oort(cohort_size=1, preferred_seconds=9.0), np.array([1.0, 2.0, 4.0])
    assert near(frequencies(rule, view([1, 1, 1]), np.arange(3), pace=pace), [4 / 7, 2 / 7, 1 / 7])
    even = replace(rule, preferred_seconds=None)
    assert near(frequencies(even, view([1, 1, 1]), np.arange(3), pace=pace), [1 / 3] * 3)


def test_property_useful_clients_are_drawn_by_utility_from_those_eligible() -> None:
    rule = Oort(cohort_size=1, **GREEDY)
    here = view([100, 97, 10], last=[1.0, 1.0, 1.0])  # scaled: 1, 97/99.7, …; the last is below the cut-off
    utility = rule.utility(np.arange(3), np.ones(3), here)
    found = frequencies(rule, here, np.arange(3))
    assert found[2] == 0
    assert near(found[:2], utility[:2] / utility[:2].sum())


def test_golden_how_many_are_explored_falls_to_the_least() -> None:
    rule = Oort(cohort_size=10, exploration=0.9, exploration_decay=0.5, least_exploration=0.2)
    last = np.array([np.nan] * 15 + [1.0] * 15)
    explored = [
        int((chosen(rule, np.arange(30), view([1] * 30, last=last, round=t)).clients < 15).sum()) for t in (1, 2, 3, 9)
    ]
    assert explored == [9, 4, 2, 2]


@pytest.mark.parametrize(("heard", "expected"), [(2, (2, 8)), (28, (8, 2)), (30, (10, 0)), (0, (0, 10))])
def test_property_when_one_kind_runs_out_the_other_fills_the_cohort(heard: int, expected: tuple[int, int]) -> None:
    last = np.where(np.arange(30) < heard, 1.0, np.nan)
    clients = chosen(Oort(cohort_size=10, exploration=0.5), np.arange(30), view([1] * 30, last=last)).clients
    assert (int((clients < heard).sum()), int((clients >= heard).sum())) == expected


def test_property_it_remembers_when_each_client_was_last_asked() -> None:
    here, rule = view([1] * 9, last=np.ones(9)), Oort(cohort_size=2)
    expected = np.zeros(9, dtype=np.int64)
    for round in range(1, 5):
        choice = chosen(rule, np.arange(round, 9), here)
        expected[choice.clients] = round
        assert choice.memory["last_round"].tolist() == expected.tolist()
        here = next_round(here, choice)


def test_property_a_slow_client_is_asked_less_and_the_clock_says_who_is_slow() -> None:
    def asked(rule: Oort, seconds: Any) -> Any:
        clock = Deadline(seconds_per_step=seconds, down_bandwidth=math.inf, up_bandwidth=math.inf)
        local, fleet = SGD(lr=0.1, steps=1), Fleet(clock=clock)
        plan = Plan(local=local, rounds=40, fleet=fleet, selection=rule, evaluate=Cadence(every=10**9))
        _, records = run(blob_task(6), plan)
        return np.bincount(np.concatenate([r.asked for r in records]), minlength=6)

    before = asked(Oort(cohort_size=2, preferred_seconds=1.0), 1.0)
    favourite = int(np.argmax(before))
    seconds = tuple(50.0 if client == favourite else 1.0 for client in range(6))
    after = asked(Oort(cohort_size=2, preferred_seconds=1.0), seconds)
    assert before[favourite] > 10
    assert after[favourite] <= 2  # explored, and then left alone
    assert np.array_equal(asked(Oort(cohort_size=2), seconds), before)  # speed does not count unless it is asked to


class Asks:
    """A rule that notes how long the clock says everyone would take, and asks the fastest."""

    cohort_size = 1

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def choose(self, pool: Ids, view: View, ask: Asker) -> Generator[Any, Any, Any]:
        seconds = (yield ask.expected(pool)).seconds
        self.noted.append(seconds)
        return Choice.of(pool[[0 if seconds is None else int(np.argmin(seconds))]])


def test_golden_the_seconds_that_a_rule_sees_are_those_that_the_round_then_takes() -> None:
    task, rule = quadratic_task([1.0] * 3, [[1.0]] * 3, [1, 1, 1]), Asks()
    clock = Deadline(seconds_per_step=(4.0, 1.0, 2.0), down_bandwidth=8.0, up_bandwidth=4.0)
    half = Fraction(fraction=0.5)  # stopping half-way is not foreseen
    plan = Plan(local=SGD(lr=0.1, steps=4, batches="full"), rounds=1, selection=rule)  # type: ignore[arg-type]
    _, records = run(task, replace(plan, fleet=Fleet(clock=clock)))
    assert rule.noted[0].tolist() == [19.0, 7.0, 11.0]  # one float64: 1 s down, 2 s up, and four steps
    assert records[1].asked.tolist() == [1]
    assert records[1].costs.sim_seconds == 7.0
    _, records = run(task, replace(plan, fleet=Fleet(clock=clock, work=half)))
    assert rule.noted[1].tolist() == rule.noted[0].tolist()
    assert records[1].costs.sim_seconds == 5.0
    run(task, plan)
    assert rule.noted[2] is None


def test_error_speed_without_a_clock_is_refused_with_the_way_out() -> None:
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, selection=Oort(cohort_size=2, preferred_seconds=5.0))
    (problem,) = [found.message for found in problems(plan)]
    assert problem == (
        "Oort on selection: preferred_seconds needs a clock that predicts how long clients take; this fleet has none. "
        'Change selection.preferred_seconds to "none", or set fleet.clock, for example to { use = "deadline" }.'
    )
    assert not list(problems(replace(plan, fleet=Fleet(clock=Deadline()))))
    assert not list(problems(replace(plan, selection=Oort(cohort_size=2))))


def test_error_oort_names_what_is_wrong_with_its_settings() -> None:
    with pytest.raises(ConfigError, match=r"Oort needs cohort_size >= 1; got 0\. Change selection\.cohort_size"):
        Oort(cohort_size=0)
    with pytest.raises(ConfigError, match=r"Oort needs exploration in \[0, 1\]; got 2\. Change selection\.exploration"):
        Oort(cohort_size=1, exploration=2)
    with pytest.raises(ConfigError, match=r"preferred_seconds > 0; got 0\.0\. Change selection\.preferred_seconds"):
        Oort(cohort_size=1, preferred_seconds=0.0)
    with pytest.raises(ConfigError, match=r"Oort needs slow_penalty >= 0; got -1\. Change selection\.slow_penalty"):
        Oort(cohort_size=1, slow_penalty=-1)


# AFL


def test_golden_the_smallest_values_are_cut() -> None:
    clients = np.array([2, 4, 6, 8])
    kept, values = most_valued(clients, np.array([1.0, 7.0, 3.0, 7.0]), 0.5)
    assert (kept.tolist(), values.tolist()) == ([4, 8], [7.0, 7.0])
    assert most_valued(clients, np.array([1.0, 7.0, 3.0, 7.0]), 0.25)[0].tolist() == [4]  # a tie keeps the lowest id
    unheard = np.array([1.0, -np.inf, -np.inf, -np.inf])
    assert most_valued(clients, unheard, 1.0)[0].tolist() == [2]  # never heard from is never kept


def test_identity_exploring_always_is_uniform() -> None:
    here = view([1, 9, 5, 2], last=[1.0, 500.0, 3.0, np.nan])
    assert near(frequencies(AFL(cohort_size=2, exploration=1.0), here, np.arange(4)), 1 / 2)


def test_identity_until_somebody_is_heard_from_afl_is_uniform() -> None:
    assert near(frequencies(AFL(cohort_size=1), view([1, 9, 5, 2]), np.arange(4)), 1 / 4)


@pytest.mark.parametrize("scaled", [False, True])
def test_property_kept_clients_are_drawn_by_a_softmax(scaled: bool) -> None:
    sizes, last = np.array([4, 1, 9]), np.array([1.0, 3.0, 0.5])
    rule = AFL(cohort_size=1, kept_share=1.0, sharpness=0.7, exploration=0.0, scaled=scaled)
    value = last * np.sqrt(sizes) if scaled else last
    share = np.exp(0.7 * value)
    assert near(frequencies(rule, view(sizes, last=last), np.arange(3)), share / share.sum())


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_property_the_valued_part_of_the_cohort_comes_from_those_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    last = rng.permutation(20) * 1.0
    choice = chosen(AFL(cohort_size=5, exploration=0.2, kept_share=0.25), np.arange(20), view([1] * 20, last=last))
    assert (last[choice.clients] >= 15).sum() >= 4  # ⌊0.8 · 5⌋ of the five largest


def test_error_afl_names_what_is_wrong_with_its_settings() -> None:
    with pytest.raises(ConfigError, match=r"AFL needs cohort_size >= 1; got 0\. Change selection\.cohort_size"):
        AFL(cohort_size=0)
    with pytest.raises(ConfigError, match=r"AFL needs kept_share in \[0, 1\]; got 1\.5\. Change selection\.kept_share"):
        AFL(cohort_size=1, kept_share=1.5)
    with pytest.raises(ConfigError, match=r"AFL needs sharpness >= 0; got -1\. Change selection\.sharpness"):
        AFL(cohort_size=1, sharpness=-1)
