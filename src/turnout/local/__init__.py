"""Local solvers: the optimiser of a client. To add a solver: one file here, one line below, one test."""

from turnout.local import effort as effort
from turnout.local import schedule as schedule
from turnout.local.adagrad import Adagrad
from turnout.local.adam import Adam
from turnout.local.meta import Meta
from turnout.local.moreau import Moreau
from turnout.local.sgd import SGD
from turnout.local.yogi import Yogi

__all__ = ["SGD", "Adagrad", "Adam", "Meta", "Moreau", "Yogi"]
