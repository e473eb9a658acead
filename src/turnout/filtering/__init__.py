"""Which of those that are up help together. To add a filter: one file here, one line below, one test."""

from turnout.filtering.everyone import Everyone

__all__ = ["Everyone"]
