"""Norm clipping: identities, the bound, and how far an attacker gets."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rows_by_hand import combined, direction, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from tests.support.tasks import quadratic_task
from turnout.aggregation import FedAvg, NormClipping
from turnout.aggregation.fedavg import Weighting
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD

VALUES = st.floats(-10, 10)
matrices = st.integers(1, 7).flatmap(
    lambda n: st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=n, max_size=n)
)


@given(matrices, st.sampled_from(["mean", "ht", "ratio"]))
def test_identity_a_bound_that_nobody_reaches_is_fedavg(delta: list[list[float]], weighting: Weighting) -> None:
    sizes = list(range(1, len(delta) + 1))
    clipped = direction(NormClipping(clip_norm=1e3, weighting=weighting), delta, sizes=sizes)
    assert close(clipped, direction(FedAvg(weighting=weighting), delta, sizes=sizes))


def test_golden_a_fixed_bound() -> None:
    # Δ = (3, 4) of length 5 is cut to length 1: (0.6, 0.8); (0, ½) stays. p = (¼, ¾)
    found = combined(NormClipping(clip_norm=1.0), rows_of([[3.0, 4.0], [0.0, 0.5]], sizes=[1, 3]))
    assert found.direction.tolist() == pytest.approx([0.15, 0.2 + 0.375])
    assert found.coefficients.tolist() == pytest.approx([0.25 / 5, 0.75])
    assert found.metrics == {"clip_norm": 1.0, "clipped": 1.0}


def test_golden_the_median_norm_counts_draws() -> None:
    # norms 1, 2, 8: the median is 2; with the third drawn three times, 1, 2, 8, 8, 8: it is 8
    delta = [[1.0], [2.0], [8.0]]
    once = combined(NormClipping(weighting="mean"), rows_of(delta))
    assert once.metrics == {"clip_norm": 2.0, "clipped": 1.0}
    assert float(once.direction) == pytest.approx(5 / 3)
    often = combined(NormClipping(weighting="mean"), rows_of(delta, multiplicity=[1, 1, 3]))
    assert often.metrics == {"clip_norm": 8.0, "clipped": 0.0}
    assert float(often.direction) == pytest.approx(27 / 5)


@given(matrices, st.floats(1e-3, 20))
def test_property_the_direction_is_never_longer_than_the_bound(delta: list[list[float]], clip_norm: float) -> None:
    found = direction(NormClipping(clip_norm=clip_norm), delta)
    assert float(found.norm()) <= clip_norm * (1 + 1e-12)


@given(matrices)
def test_property_with_the_median_at_most_half_are_cut(delta: list[list[float]]) -> None:
    found = combined(NormClipping(), rows_of(delta))
    assert found.metrics["clipped"] <= len(delta) / 2


def test_identity_with_a_fixed_bound_splitting_a_client_in_two_changes_nothing() -> None:
    rule = NormClipping(clip_norm=2.0)
    whole = direction(rule, [[3.0, 4.0], [1.0, 0.0]], sizes=[2, 5])
    parts = direction(rule, [[3.0, 4.0], [3.0, 4.0], [1.0, 0.0]], sizes=[1, 1, 5])
    assert close(whole, parts)


def test_convergence_an_attacker_pushes_no_further_than_the_bound_allows(any_engine: Callable[[], Engine]) -> None:
    # three honest minima at 0, an attacker at 1e6. a = 1 − 0.7³; fixed point 3·a·x = C
    task = quadratic_task([1.0] * 4, [[0.0], [0.0], [0.0], [1e6]], [1] * 4)
    plan = Plan(
        local=SGD(lr=0.3, steps=3, batches="full"),
        rounds=60,
        aggregation=NormClipping(clip_norm=0.5),
        evaluate=Cadence(every=10**9),
    )
    final, _ = run(task, plan, engine=any_engine())
    assert float(final.model) == pytest.approx(0.5 / (3 * (1 - 0.7**3)), abs=1e-8)


def test_error_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"clip_norm > 0; got 0\. Change aggregation\.clip_norm"):
        NormClipping(clip_norm=0)


def test_contract_a_change_of_zero_is_left_alone() -> None:
    found = combined(NormClipping(clip_norm=1.0), rows_of([[0.0], [3.0]]))
    assert found.coefficients.tolist() == pytest.approx([0.5, 0.5 / 3])
    assert np.isfinite(found.coefficients).all()
