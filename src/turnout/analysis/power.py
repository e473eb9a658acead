"""How many seeds a comparison needs: the power of the t-test, worked out for few seeds.

    power     P(|T| > t_ν(1 − a/2)),   T = (Z + δ / (σ/√n)) / √(W/ν)          Z normal, W ~ χ²_ν, ν = n − 1
    smallest  the δ with a power of 80 % for the seeds that there are
    needed    the smallest n with a power of 80 % for a given δ

σ is the standard deviation of the differences over seeds, estimated from the seeds that were run: with few of them the
answers are rough. a is the level of the comparison after correction.
"""

import math
from functools import lru_cache

import numpy as np

from turnout.array_types import Floats

POWER = 0.8
MOST_NEEDED = 100_000  # seeds; more than this is reported as None
NODES = 400  # quantiles of W
BISECTIONS = 60


def power_of(shift: float, degrees: float, level: float) -> float:
    """Return the power of a two-sided t-test at this level.

    Args:
        shift: the true difference divided by the standard error of its estimate.
        degrees: degrees of freedom ν.
        level: the significance level a.
    """
    from scipy import special  # a quarter of a second to import

    reach = _critical(degrees, level) * _spreads(degrees)
    return float((special.ndtr(shift - reach) + special.ndtr(-shift - reach)).mean())


def smallest_difference(error: float, degrees: float, level: float, power: float = POWER) -> float:
    """Return the smallest true difference that is told from none with this power, given its standard error."""
    return error * _shift(degrees, level, power)


def seeds_needed(difference: float, std: float, level: float, power: float = POWER) -> int | None:
    """Return the number of pairs of runs that tell this difference with this power; None if more than MOST_NEEDED.

    Args:
        difference: the true difference.
        std: standard deviation of the differences over seeds.
        level: the significance level after correction.
        power: the chance that a difference of this size is told.
    """

    def is_enough(seeds: int) -> bool:
        return power_of(abs(difference) * math.sqrt(seeds) / std, seeds - 1, level) >= power

    if std <= 0:
        return 2
    low, high = 1, 2  # too few; perhaps enough
    while not is_enough(high):
        low, high = high, 2 * high
        if low >= MOST_NEEDED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _shift(degrees: float, level: float, power: float) -> float:
    """Return the difference, in standard errors, that is told with this power."""
    low, high = 0.0, 1.0
    while power_of(high, degrees, level) < power:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, degrees, level) >= power else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _critical(degrees: float, level: float) -> float:
    from scipy import special  # a quarter of a second to import

    return -float(special.stdtrit(degrees, level / 2))


@lru_cache(maxsize=256)
def _spreads(degrees: float) -> Floats:
    """Return √(W/ν) at evenly spaced quantiles of W."""
    from scipy import special  # a quarter of a second to import

    quantiles = (np.arange(NODES) + 0.5) / NODES
    return np.asarray(np.sqrt(2 * special.gammaincinv(degrees / 2, quantiles) / degrees))
