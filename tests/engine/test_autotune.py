"""How to run is chosen by a measurement that a noisy moment does not decide."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.engine_requests import offset_of, request
from tests.support.tasks import blob_task
from turnout.engine import Vectorised
from turnout.engine.vectorised import autotune
from turnout.engine.vectorised.autotune import TURNS, Execution, candidates, choose
from turnout.local import SGD

ALONE, FEW, MANY, THREADS = (
    Execution(False, 1, 2, 1),
    Execution(True, 5, 1, 1),
    Execution(True, 50, 2, 1),
    Execution(True, 50, 1, 2),
)
TRUE = {ALONE: 1.0, FEW: 1.1, MANY: 1.15, THREADS: 3.0}


def test_contract_the_fastest_way_is_chosen_and_told() -> None:
    best, told = choose(list(TRUE), lambda way, steps: TRUE[way])
    assert best == ALONE
    assert told == {way.describe(): seconds for way, seconds in TRUE.items()}


def test_contract_a_noisy_moment_does_not_decide() -> None:
    disturbed = np.random.default_rng(0)
    found = [choose(list(TRUE), lambda way, steps: TRUE[way] * (1 + disturbed.exponential(0.15)))[0] for _ in range(50)]
    assert found.count(ALONE) >= 45  # of one sample each it would be 36


def test_contract_what_is_far_behind_is_not_tried_again() -> None:
    tried = []
    choose(list(TRUE), lambda way, steps: tried.append((way, steps)) or TRUE[way])  # type: ignore[func-returns-value]
    assert [steps for way, steps in tried if way == THREADS] == [1, 2, 2]
    assert [steps for way, steps in tried if way == MANY] == [1, 2, *[8] * TURNS]
    tried.clear()
    choose(
        list(TRUE),
        lambda way, steps: tried.append((way, steps)) or TRUE[way] * (1.1 if steps == 8 and way != ALONE else 1),  # type: ignore[func-returns-value]
    )
    assert [steps for way, steps in tried if way == FEW] == [1, 2, 8]  # far behind once more was seen of it


def test_contract_one_bad_sample_does_not_rule_a_way_out() -> None:
    spoilt = {ALONE}  # its first try of two steps takes ten times as long

    def measure(way: Execution, steps: int) -> float:
        bad = steps == 2 and way in spoilt
        spoilt.difference_update({way} if bad else ())
        return TRUE[way] * (10.0 if bad else 1.0)

    assert choose(list(TRUE), measure)[0] == ALONE


def test_contract_operation_threads_must_win_clearly() -> None:
    assert choose([MANY, THREADS], lambda way, steps: {MANY: 1.0, THREADS: 0.95}[way])[0] == MANY
    assert choose([MANY, THREADS], lambda way, steps: {MANY: 1.0, THREADS: 0.85}[way])[0] == THREADS


def test_contract_when_time_runs_out_the_best_so_far_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(autotune.time, "perf_counter", lambda: float(next(clock)))  # type: ignore[attr-defined]
    tried = []
    best, told = choose([FEW, ALONE, MANY], lambda way, steps: tried.append((way, steps)) or TRUE[way])  # type: ignore[func-returns-value]
    assert best == ALONE
    assert set(told) == {FEW.describe(), ALONE.describe(), MANY.describe()}
    assert sum(steps == 8 for _, steps in tried) <= 3


def test_contract_a_single_way_is_not_timed_for_nothing() -> None:
    tried = []
    assert choose([FEW], lambda way, steps: tried.append(steps) or 1.0)[0] == FEW  # type: ignore[func-returns-value]
    assert tried == [1, 2]


def test_contract_work_that_moves_more_memory_is_measured_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path))
    task, shares = blob_task(4), np.full(4, 0.25)
    engine = Vectorised("cpu")
    for more in ({}, {"lr_decay": 1.0}, {"momentum": 0.9}):  # a factor of one is no feature
        engine.answer([(task, request(task, shares, SGD(lr=0.1, batch_size=5, epochs=1, **more)))])  # type: ignore[arg-type]
    assert len(engine.executions) == 2
    controlled = SGD(lr=0.1, batch_size=5, epochs=1, control="average")
    engine.answer([(task, request(task, shares, controlled, offset=offset_of(task, 0)))])
    assert len(engine.executions) == 3


@pytest.mark.parametrize("row_bytes", [4 << 10, 800 << 10])
@pytest.mark.parametrize("of_images", [False, True])
def test_contract_an_operation_takes_no_more_threads_than_it_may(row_bytes: int, of_images: bool) -> None:
    ways = candidates(100, row_bytes, True, 4, 1, of_images)
    assert {way.threads for way in ways} == {1}
    assert {way.workers for way in ways} == {1, 4}  # clients may still be side by side
    assert len(set(ways)) == len(ways)
    assert {way.threads for way in candidates(100, row_bytes, True, 4, 3, of_images)} == {1, 3}


def test_contract_threads_are_as_the_environment_says() -> None:
    code = (
        "from turnout.engine.vectorised.autotune import cores, most_threads; "
        "print(most_threads() <= cores(), most_threads())"
    )
    for said in ("1", "1000"):
        environment = {**os.environ, "OMP_NUM_THREADS": said, "MKL_NUM_THREADS": said}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split()[0] == "True"
        assert said != "1" or done.stdout.split()[1] == "1"
