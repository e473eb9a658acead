"""Client selection: which clients form the cohort. To add a rule: one file here, one line below, one test."""

from turnout.selection.afl import AFL
from turnout.selection.divfl import DivFL
from turnout.selection.low_loss import LowLoss
from turnout.selection.oort import Oort
from turnout.selection.optimal import Optimal
from turnout.selection.poisson import Poisson
from turnout.selection.power_of_choice import PowerOfChoice
from turnout.selection.uniform import Uniform
from turnout.selection.weighted import Weighted

__all__ = ["AFL", "DivFL", "LowLoss", "Oort", "Optimal", "Poisson", "PowerOfChoice", "Uniform", "Weighted"]
