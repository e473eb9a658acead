"""Work: how many of the asked local steps a client completes. To add a rule: one file, one line below, one test."""

from turnout.fleet.work.complete import Complete
from turnout.fleet.work.fraction import Fraction
from turnout.fleet.work.journal import ReplayedWork
from turnout.fleet.work.ruan_traces import RuanTraces
from turnout.fleet.work.stragglers import Stragglers

__all__ = ["Complete", "Fraction", "ReplayedWork", "RuanTraces", "Stragglers"]
