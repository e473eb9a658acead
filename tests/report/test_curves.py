"""A curve is what its seeds have, round by round, worked out by hand."""

import numpy as np
import pandas as pd
from pandas import DataFrame

from turnout.report.curves import AXES, curve

NAN, INF = np.nan, np.inf
COSTS = [axis for axis in AXES if axis != "round"]


def frame(rows: list[tuple[int, int, float]], cost: list[float] | None = None) -> DataFrame:
    """A table of (seed, round, value), in any order; costs are 10 times the round plus the seed, or as given."""
    table = pd.DataFrame(rows, columns=["seed", "round", "value"])
    for axis in COSTS:
        table[axis] = 10.0 * table["round"] + table["seed"] if cost is None else cost
    return table.sample(frac=1.0, random_state=0)


def test_golden_three_seeds_of_which_one_ends_early() -> None:
    found = curve(frame([(0, 0, 1.0), (1, 0, 3.0), (2, 0, 8.0), (0, 2, -5.0), (2, 2, -1.0), (2, 4, 7.0)]))
    assert found.round.tolist() == [0, 2, 4]
    assert found.seeds.tolist() == [3, 2, 1]
    assert found.mean.tolist() == [4.0, -3.0, 7.0]
    assert np.allclose(found.std, [13**0.5, 8**0.5, 0.0])  # (9 + 1 + 16)/2, (4 + 4)/1, and nothing to say of one
    assert found.low.tolist() == [1.0, -5.0, 7.0]
    assert found.high.tolist() == [8.0, -1.0, 7.0]
    assert all(found.costs[axis].tolist() == [1.0, 21.0, 42.0] for axis in COSTS)


def test_contract_a_value_that_is_not_finite_spoils_its_round_alone() -> None:
    for bad in (NAN, INF, -INF):
        found = curve(frame([(0, 0, 1.0), (1, 0, 3.0), (0, 1, bad), (1, 1, 2.0)]))
        for values, good in ((found.mean, 2.0), (found.std, 2**0.5), (found.low, 1.0), (found.high, 3.0)):
            assert np.isclose(values[0], good)
            assert np.isnan(values[1])
        assert found.seeds.tolist() == [2, 2]


def test_contract_values_too_large_to_square_are_no_warning() -> None:
    found = curve(frame([(0, 0, 1e300), (1, 0, -1e300)]))
    assert (found.mean[0], found.low[0], found.high[0]) == (0.0, -1e300, 1e300)
    assert found.std[0] == INF


def test_contract_a_cost_that_is_not_known_is_left_out() -> None:
    rows = [(0, 0, 1.0), (1, 0, 1.0), (0, 1, 1.0)]
    found = curve(frame(rows, cost=[2.0, NAN, NAN]))
    assert all(np.array_equal(found.costs[axis], [2.0, NAN], equal_nan=True) for axis in COSTS)
