"""A measured number with its standard error, and its name."""

import math
from dataclasses import dataclass

import numpy as np

from turnout.array_types import Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, and the standard deviation of its error; 0 where it is exact."""

    value: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured number, with its symbol and its definition in words or as a formula."""

    name: str
    symbol: str
    estimate: Estimate
    meaning: str


def weighted_mean(values: Floats, weights: Floats, population: int) -> Estimate:
    """Return Σ w_i v_i; its error comes from the clients that were not measured.

    Args:
        values: one per measured client.
        weights: of the measured clients; they sum to one.
        population: number of clients in the federation; as many as there are values is all of them.
    """
    mean = float(weights @ values)
    left_out = max(1 - len(values) / population, 0.0)
    return Estimate(mean, math.sqrt(left_out * float((weights**2 * (values - mean) ** 2).sum())))


def mean_of(samples: Floats) -> Estimate:
    """Return the mean of independent samples."""
    count = len(samples)
    error = float(np.std(samples, ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return Estimate(float(np.mean(samples)), error)
