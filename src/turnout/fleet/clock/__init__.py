"""Clocks: how long computation and transfer take. To add a clock: one file here, one line below, one test."""

from turnout.fleet.clock.deadline import Deadline
from turnout.fleet.clock.journal import ReplayedClock

__all__ = ["Deadline", "ReplayedClock"]
