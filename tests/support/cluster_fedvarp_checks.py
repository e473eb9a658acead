"""Checks of ClusterFedVARP, which mutants of it must fail."""

import itertools
from typing import Any

import numpy as np
import pytest

from tests.support.aggregation_inputs import combined, facts
from tests.support.fedvarp_checks import HERE, NEW, OLD, P, some
from turnout.aggregation import ClusterFedVARP
from turnout.array_types import Floats


def grouped(rule: ClusterFedVARP, clusters: list[int], changes: Floats = OLD) -> dict[str, Any]:
    """The memory of a rule with these clusters after everyone sent these changes."""
    everyone = facts(np.arange(4), weights=P, prob=np.ones(4))
    return combined(rule, everyone, changes, HERE, {"clusters": np.asarray(clusters)}).memory


def check_golden(rule: ClusterFedVARP) -> None:
    # clusters {0}, {1, 2, 3}; y = (1, mean(0, −1, 5) = 4/3) in the first coordinate; S = {0, 1}, Δ = (2, 1):
    # v = ½((2 − 1) + (1 − 4/3)) + ¼(1·1 + 3·4/3) = ⅓ + 5/4; then y = (2, 1)
    memory = grouped(rule, [0, 1, 1, 1])
    got = some(rule, [0, 1], memory=memory)
    assert got.direction[0].item() == pytest.approx(1 / 3 + 5 / 4, abs=1e-12)
    assert got.memory["table"].take(np.arange(2))[:, 0].tolist() == pytest.approx([2.0, 1.0], abs=1e-12)
    assert got.memory["mean"][0].item() == pytest.approx((2 + 3 * 1) / 4, abs=1e-12)


def check_unbiased_over_all_subsets(rule: ClusterFedVARP) -> None:
    """With clusters of unequal size, the mean of v over all cohorts is the mean of all changes."""
    memory = grouped(rule, [0, 1, 1, 1])
    for size in (1, 2, 3):
        got = [some(rule, s, memory=memory).direction.numpy() for s in itertools.combinations(range(4), size)]
        assert np.mean(got, axis=0) == pytest.approx(NEW.mean(0), abs=1e-12)
