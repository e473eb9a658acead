"""The fastest way is found in real rounds, within a tenth of their work, and a noisy round does not decide."""

from collections.abc import Callable

import numpy as np
import pytest

from turnout.engine.vectorised.autotune import Execution
from turnout.engine.vectorised.search import SEEN, TURNS, Search

GUESS, FEW, MANY, THREADS = (
    Execution(False, 1, 2, 1),
    Execution(True, 5, 1, 1),
    Execution(True, 50, 2, 1),
    Execution(True, 50, 1, 2),
)
WAYS = [GUESS, FEW, MANY, THREADS]
TRUE = {GUESS: 1.15, FEW: 1.0, MANY: 1.1, THREADS: 3.0}
STEPS = 10  # client-steps of a round


def searched(
    rate: Callable[[Execution], float], rounds: int = 10_000, ways: list[Execution] = WAYS
) -> tuple[Search, list[Execution]]:
    """Return a search at its end, of a study of so many rounds, and the way of each; `rate` is per client-step."""
    search, ran = Search(ways), list[Execution]()
    while (trial := search.following(rounds - len(ran))) is not None:
        seconds = rate(trial.execution)
        if seconds > trial.most_seconds_a_step:
            search.give_up(trial.execution, trial.most_seconds_a_step * STEPS)
        else:
            search.add(trial.execution, seconds * STEPS, STEPS)
        ran.append(trial.execution)
    return search, ran


def test_contract_the_fastest_way_is_found() -> None:
    search, ran = searched(TRUE.__getitem__)
    assert search.best == FEW
    assert search.is_complete
    assert ran[: 4 * SEEN] == [way for way in WAYS for _ in range(SEEN)]
    assert [ran.count(way) for way in WAYS] == [TURNS, TURNS, TURNS, SEEN]  # what is far behind is not tried again


def test_contract_a_noisy_round_does_not_decide() -> None:
    noise = np.random.default_rng(0)
    found = [searched(lambda way: TRUE[way] * (1 + noise.exponential(0.15)))[0].best for _ in range(50)]
    assert found.count(FEW) >= 45


def test_contract_operation_threads_must_win_clearly() -> None:
    assert searched({MANY: 1.0, THREADS: 0.95}.__getitem__, ways=[MANY, THREADS])[0].best == MANY
    assert searched({MANY: 1.0, THREADS: 0.85}.__getitem__, ways=[MANY, THREADS])[0].best == THREADS


def test_golden_less_than_ten_seconds_of_work_is_done_the_first_way() -> None:
    assert len(searched(lambda way: TRUE[way] / 100, rounds=87 + SEEN)[1]) > SEEN  # 87 x 10 x 0.0115 s = 10.005 s
    assert searched(lambda way: TRUE[way] / 100, rounds=86 + SEEN)[1] == [GUESS] * SEEN
    assert Search(WAYS).following(0.0) is not None  # not known: the guess is timed, and then kept
    assert searched(TRUE.__getitem__, rounds=0)[1] == [GUESS] * SEEN


def test_golden_a_way_that_was_not_tried_needs_the_time_of_two_rounds() -> None:
    """Of 20 rounds to come a tenth is two; of 19 it is less. A slower way loses some of it, and another needs two."""
    assert searched(TRUE.__getitem__, rounds=SEEN + 19)[1] == [GUESS] * SEEN
    slower = TRUE | {FEW: 2.3}
    assert searched(slower.__getitem__, rounds=SEEN + 20)[1] == [GUESS, GUESS, FEW]
    search, _ = searched(slower.__getitem__, rounds=SEEN + 20)
    assert search.lost_seconds == pytest.approx((2.3 - 1.15) * STEPS)
    assert search.best == GUESS
    assert not search.is_complete


def test_golden_a_round_that_is_given_up_is_lost_as_a_whole() -> None:
    search = Search([GUESS, FEW])
    for _ in range(SEEN):
        search.add(GUESS, 1.0, STEPS)
    trial = search.following(25.0)
    assert trial is not None
    assert trial.execution == FEW
    assert trial.most_seconds_a_step * STEPS == pytest.approx(0.1 * 25.0)  # less than four rounds
    late = search.following(1000.0)
    assert late is not None
    assert late.most_seconds_a_step * STEPS == pytest.approx(4.0)
    search.give_up(FEW, 2.5)
    assert search.lost_seconds == pytest.approx(2.5)
    assert search.best == GUESS
    assert search.following(1000.0) is None


@pytest.mark.parametrize("rounds", [10, 20, 40, 80, 160, 1000])
@pytest.mark.parametrize("slow", [1.5, 3.0, 100.0])
def test_property_a_search_loses_at_most_a_tenth_of_the_work(rounds: int, slow: float) -> None:
    true = {way: 1.0 if way == GUESS else slow for way in WAYS}
    search, _ = searched(true.__getitem__, rounds=rounds)
    assert search.best == GUESS
    assert search.lost_seconds <= 0.1 * rounds * STEPS * (1.0 + 1e-9)


def test_contract_a_way_that_takes_four_times_as_long_is_given_up_after_one_round() -> None:
    search, ran = searched(lambda way: 100.0 if way == THREADS else TRUE[way])
    assert ran.count(THREADS) == 1
    assert search.seen[THREADS].is_given_up
    assert search.is_complete
    assert search.best == FEW


def test_contract_a_single_way_is_not_searched() -> None:
    assert searched(TRUE.__getitem__, ways=[FEW])[1] == []
    assert Search([FEW]).best == FEW


def test_contract_a_round_without_steps_says_nothing() -> None:
    search = Search(WAYS)
    search.add(GUESS, 1.0, 0)
    assert search.seen == {}
