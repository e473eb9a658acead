"""Filters by size, by work and by the size of the change."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.runs import run
from tests.support.tasks import quadratic_task
from turnout.coordinator import Cadence, Plan
from turnout.errors import ConfigError
from turnout.filtering import DataSize, Everyone, MinimumSteps, UpdateNorm
from turnout.fleet import Deadline, Fleet, Fraction
from turnout.local import SGD
from turnout.protocols import Filtering

TASK: Callable[..., Any] = lambda: quadratic_task([1.0] * 4, [[1.0], [2.0], [3.0], [400.0]], [1, 5, 9, 20])  # noqa: E731
NEVER = Cadence(every=10**9)


def asked(filtering: Filtering, local: None = None) -> list[int]:
    _, records = run(
        TASK(), Plan(local=local or SGD(lr=0.1, batch_size=4, epochs=1), rounds=1, filtering=filtering, evaluate=NEVER)
    )
    result: list[int] = records[-1].asked.tolist()
    return result


def test_golden_sizes() -> None:
    assert asked(DataSize(least=5)) == [1, 2, 3]
    assert asked(DataSize(least=5, most=9)) == [1, 2]


def test_golden_steps() -> None:
    assert asked(MinimumSteps(least=3)) == [2, 3]  # 1, 2, 3 and 5 batches of four


def test_golden_an_exploding_change_is_left_out_and_nobody_trains_twice() -> None:
    _, records = run(
        TASK(),
        Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=1, filtering=UpdateNorm(factor=3.0), evaluate=NEVER),
    )
    assert records[-1].asked.tolist() == [0, 1, 2]
    assert records[-1].costs.gradient_evaluations == 1 + 5 + 9 + 20


@pytest.mark.parametrize("open_filter", [DataSize(), MinimumSteps(), UpdateNorm(factor=1e9), Everyone()])
def test_identity_an_open_filter_is_no_filter(open_filter: Filtering) -> None:
    plan = Plan(local=SGD(lr=0.1, batch_size=4, epochs=1), rounds=3, evaluate=NEVER)
    base, _ = run(TASK(), plan)
    same, _ = run(TASK(), replace(plan, filtering=open_filter))
    assert torch.allclose(base.model, same.model, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"deadline_seconds": 6.0},
        {"deadline_seconds": 6.0, "incomplete": "drop"},
        {"over_selection": 2.0},
        {"deadline_seconds": 0.5},
    ],
)
def test_identity_work_that_a_filter_asks_for_is_done_on_the_clock(limits: dict[str, Any]) -> None:
    clock = Deadline(seconds_per_step=(1.0, 2.0, 0.5, 4.0), down_bandwidth=math.inf, up_bandwidth=math.inf, **limits)
    fleet = Fleet(clock=clock, work=Fraction(fraction=(1.0, 0.5, 1.0, 1.0)))
    plan = Plan(local=SGD(lr=0.1, steps=4, batches="full"), rounds=3, fleet=fleet, evaluate=NEVER)
    base, before = run(TASK(), plan)
    same, after = run(TASK(), replace(plan, filtering=UpdateNorm(factor=1e9)))
    assert torch.allclose(base.model, same.model, rtol=0, atol=1e-12)
    for mine, theirs in zip(after, before, strict=True):
        assert np.array_equal(mine.answered, theirs.answered)
        assert np.array_equal(mine.local_steps[mine.local_steps > 0], theirs.local_steps[theirs.local_steps > 0])
        assert mine.costs == theirs.costs
    assert same.world["seconds"] == base.world["seconds"] > 0


def test_contract_a_filter_that_keeps_nobody_is_recorded() -> None:
    _, records = run(TASK(), Plan(local=SGD(lr=0.1, steps=1), rounds=1, filtering=DataSize(least=100), evaluate=NEVER))
    assert len(records[-1].asked) == 0
    assert records[-1].metrics["filter_kept"] == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DataSize(least=0), "least >= 1; got 0"),
        (lambda: DataSize(least=5, most=2), "least <= most; got 5 and 2"),
        (lambda: MinimumSteps(least=0), "least >= 1; got 0"),
        (lambda: UpdateNorm(factor=0.5), r"factor >= 1; got 0\.5"),
    ],
)
def test_error_settings(make: Callable[..., Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_contract_pool_order_is_kept() -> None:
    assert np.all(np.diff(asked(DataSize())) > 0)
