"""Schedules of the local learning rate over the rounds. To add a schedule: one file, one line below, one test."""

from turnout.local.schedule.constant import Constant
from turnout.local.schedule.exponential import Exponential
from turnout.local.schedule.inverse import Inverse
from turnout.local.schedule.step import Step

__all__ = ["Constant", "Exponential", "Inverse", "Step"]
