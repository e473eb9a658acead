"""How many seeds: the power of a t-test against scipy's noncentral t, and against simulated studies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from turnout.analysis.power import POWER, power_of, seeds_needed, smallest_difference
from turnout.analysis.statistics import paired


@pytest.mark.parametrize("degrees", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_golden_power_is_that_of_the_noncentral_t(degrees: int, shift: float, level: float) -> None:
    critical = stats.t.isf(level / 2, degrees)
    expected = stats.nct.sf(critical, degrees, shift) + stats.nct.cdf(-critical, degrees, shift)
    assert power_of(shift, degrees, level) == pytest.approx(expected, abs=2e-3)


def test_golden_power_without_a_difference_is_the_level() -> None:
    assert power_of(0.0, 7, 0.05) == pytest.approx(0.05, abs=1e-3)


def test_golden_a_difference_of_one_spread_needs_ten_seeds() -> None:
    """The textbook case: d_z = 1, two-sided 5 %, power 80 % takes 10 pairs; d_z = 0.5 takes 34."""
    assert seeds_needed(1.0, 1.0, 0.05) == 10
    assert seeds_needed(-0.5, 1.0, 0.05) == 34
    assert seeds_needed(1.0, 0.0, 0.05) == 2
    assert seeds_needed(1e-4, 1.0, 0.05) is None


@given(st.integers(2, 60), st.floats(0.1, 10), st.sampled_from([0.05, 0.01, 0.05 / 6]))
def test_property_the_smallest_difference_of_n_seeds_needs_n_seeds(seeds: int, std: float, level: float) -> None:
    smallest = smallest_difference(std / math.sqrt(seeds), seeds - 1, level)
    needed = seeds_needed(smallest * 1.0001, std, level)
    assert needed is not None
    assert needed <= seeds
    fewer = seeds_needed(smallest * 1.1, std, level)
    assert fewer is not None
    assert fewer <= needed


@pytest.mark.parametrize("seeds", [4, 8, 20])
def test_property_the_smallest_difference_is_told_in_four_studies_of_five(seeds: int) -> None:
    trials, level = 20_000, 0.025
    delta = smallest_difference(1 / math.sqrt(seeds), seeds - 1, level)
    d = delta + np.random.default_rng(seeds).standard_normal((trials, seeds))
    t = d.mean(1) / (d.std(1, ddof=1) / math.sqrt(seeds))
    told = (2 * special.stdtr(seeds - 1, -np.abs(t)) < level).mean()
    assert told == pytest.approx(POWER, abs=4 * math.sqrt(0.16 / trials) + 0.003)


def test_golden_a_difference_says_what_its_seeds_could_have_told() -> None:
    values = np.array([1.0, -0.5, 0.7, 0.1])
    found = paired(values, np.zeros(4), level=0.05)
    assert found is not None
    std = float(values.std(ddof=1))
    assert found.smallest == pytest.approx(smallest_difference(std / 2, 3, 0.05))
    assert found.seeds_needed == seeds_needed(float(values.mean()), std, 0.05)
