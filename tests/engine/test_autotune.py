"""How to run follows from shapes at first; what is worth trying beside it, and what counts as the same work."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.engine_requests import offset_of, request
from tests.support.tasks import blob_task
from turnout.engine import Vectorised
from turnout.engine.vectorised.autotune import Execution, candidates, guess
from turnout.local import SGD

MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "row_bytes", "expected"),
    [
        (50, 2 << 10, Execution(True, 50, 1, 1)),  # softmax regression: operations are short
        (1000, 3 << 10, Execution(True, 500, 2, 1)),  # many of them: a block for each core
        (100, 800 << 10, Execution(True, 10, 2, 1)),  # blocks of at most 8 MiB, as many for each core
        (100, 3 * MIB, Execution(False, 1, 2, 1)),  # large rows keep a core busy alone
        (1, 2 << 10, Execution(True, 1, 1, 1)),
    ],
)
def test_golden_the_first_way_follows_from_shapes(rows: int, row_bytes: int, expected: Execution) -> None:
    assert guess(rows, row_bytes, True, 2, False) == expected
    assert guess(rows, row_bytes, False, 2, False) == Execution(False, 1, 2, 1)  # a module that cannot be stacked
    assert guess(rows, row_bytes, True, 2, True) == Execution(False, 1, 2, 1, pixels_last=True)  # convolutions


def test_contract_a_way_is_described_in_words() -> None:
    assert Execution(True, 64, 2, 1).describe() == "stacked, blocks of 64, 2 workers"
    assert Execution(True, 64, 1, 2).describe() == "stacked, blocks of 64, 1 worker with 2 threads"
    assert Execution(False, 1, 2, 1, pixels_last=True).describe() == "one by one, 2 workers, pixels last"


def test_contract_work_that_moves_more_memory_is_measured_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path))
    task, shares = blob_task(4), np.full(4, 0.25)
    engine = Vectorised("cpu")
    for more in ({}, {"lr_decay": 1.0}, {"momentum": 0.9}):  # a factor of one is no feature
        engine.answer([(task, request(task, shares, SGD(lr=0.1, batch_size=5, epochs=1, **more)))])  # type: ignore[arg-type]
    assert len(engine.tunings) == 2
    controlled = SGD(lr=0.1, batch_size=5, epochs=1, control="average")
    engine.answer([(task, request(task, shares, controlled, offset=offset_of(task, 0)))])
    assert len(engine.tunings) == 3


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


def test_contract_a_module_that_cannot_be_stacked_is_tried_on_one_worker_with_one_thread() -> None:
    for cores in (1, 2, 8):
        assert Execution(False, 1, 1, 1) in candidates(100, 4 * MIB, False, cores, cores)
        assert Execution(False, 1, cores, 1) in candidates(100, 4 * MIB, False, cores, cores)
