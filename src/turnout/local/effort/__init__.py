"""Effort: how many local steps clients are asked for. To add a rule: one file here, one line below, one test."""

from turnout.local.effort.adacomm import AdaComm
from turnout.local.effort.by_trace import ByTrace
from turnout.local.effort.lognormal import Lognormal

__all__ = ["AdaComm", "ByTrace", "Lognormal"]
