"""Checks of robust aggregation, which mutants of it must fail."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.rows_by_hand import combined, rows_of
from tests.support.server_steps import close
from turnout.aggregation import FLTrust
from turnout.aggregation.krum import square_distances

ROOT = [1.0, 2.0, -2.0]  # of length 3


def assert_the_root_set_decides(rule: FLTrust) -> None:
    """A majority against the server's own step has no say at all, and those with it are heard at its length."""
    honest, hostile = np.array(ROOT), -np.array(ROOT)
    found = combined(rule, rows_of([hostile, hostile, hostile, 5 * honest]), root=ROOT)
    assert found.coefficients.tolist() == pytest.approx([0, 0, 0, 0.2], abs=1e-12)
    assert close(found.direction, torch.from_numpy(honest))


LINE = [[0.0], [1.0], [3.0], [4.0], [100.0]]


def assert_scores_sum_the_nearest_others(scores: Callable[..., Any]) -> None:
    """f = 1 on a line of five: each score sums the 5 − 1 − 2 = 2 nearest squared distances to others."""
    distances = square_distances(torch.tensor(LINE, dtype=torch.float64))
    assert scores(distances, 2) == pytest.approx([1 + 9, 1 + 4, 4 + 1, 1 + 9, 96**2 + 97**2])
