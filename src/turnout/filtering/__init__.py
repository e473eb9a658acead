"""Filters: which available clients may be selected. To add a filter: one file here, one line below, one test."""

from turnout.filtering.data_size import DataSize
from turnout.filtering.everyone import Everyone
from turnout.filtering.greedy import Greedy
from turnout.filtering.minimum_steps import MinimumSteps
from turnout.filtering.update_norm import UpdateNorm

__all__ = ["DataSize", "Everyone", "Greedy", "MinimumSteps", "UpdateNorm"]
