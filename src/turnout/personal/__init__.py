"""Personal models: what a client keeps for itself. To add a rule: one file here, one line below, one test."""

from turnout.personal.apfl import APFL
from turnout.personal.codistil import Codistil
from turnout.personal.ditto import Ditto
from turnout.personal.fine_tune import FineTune
from turnout.personal.layers import Layers
from turnout.personal.moreau import Moreau

__all__ = ["APFL", "Codistil", "Ditto", "FineTune", "Layers", "Moreau"]
