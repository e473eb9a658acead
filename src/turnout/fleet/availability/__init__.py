"""Availability: which clients are available in a round. To add a rule: one file here, one line below, one test."""

from turnout.fleet.availability.always import Always
from turnout.fleet.availability.appealed import Appealed
from turnout.fleet.availability.bernoulli import Bernoulli
from turnout.fleet.availability.cyclic import Cyclic
from turnout.fleet.availability.diurnal import Diurnal
from turnout.fleet.availability.half_and_half import HalfAndHalf
from turnout.fleet.availability.journal import ReplayedAvailability
from turnout.fleet.availability.markov import Markov
from turnout.fleet.availability.never import Never
from turnout.fleet.availability.recorded import Recorded
from turnout.fleet.availability.resampled import Resampled

__all__ = [
    "Always",
    "Appealed",
    "Bernoulli",
    "Cyclic",
    "Diurnal",
    "HalfAndHalf",
    "Markov",
    "Never",
    "Recorded",
    "ReplayedAvailability",
    "Resampled",
]
