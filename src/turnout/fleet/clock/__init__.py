"""Clocks: how long computation and transfer take. To add a clock: one file here, one line below, one test."""

from turnout.fleet.clock.deadline import Deadline

__all__ = ["Deadline"]
