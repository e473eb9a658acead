"""Checks of FedNova, which mutants of it must fail."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.aggregation_inputs import combined, facts, view
from turnout.array_types import Floats


def check_golden(rule: Any) -> None:
    # p = (¼, ¾), ‖a‖ = (2, 5): τ_eff = ½ + 3¾ = 4¼; Δ = (4, 10): 4¼·(¼·4/2 + ¾·10/5) = 8½
    two = facts([0, 1], weights=[0.25, 0.75], steps=[2, 5])
    got = combined(rule, two, [4.0, 10.0], view([1, 3], 1))
    assert got.direction.item() == pytest.approx(8.5, abs=1e-12)
    assert got.coefficients == pytest.approx([0.53125, 0.6375], abs=1e-12)


def check_nobody_moved_means_no_step(rule: Any) -> None:
    # the model is 1, not 0: a rule that weighs models instead of changes would scale it
    got = combined(rule, facts([0, 1], steps=[2, 5]), [[0.0, 0.0], [0.0, 0.0]], view([1, 1], 2))
    assert torch.equal(got.direction, torch.zeros(2, dtype=torch.float64))


def check_common_direction(rule: Any, weights: Sequence[float] | Floats, work: Floats) -> None:
    # everyone walks the same way, each as far as it worked: the step is τ_eff along it
    p = np.asarray(weights) / sum(weights)
    given_facts = facts(np.arange(len(p)), weights=p, work=work)
    got = combined(rule, given_facts, np.outer(work, [1.0, -2.0]), view(np.ones(len(p)), 2))
    assert got.direction.numpy() == pytest.approx((p @ work) * np.array([1.0, -2.0]), rel=1e-12)
