"""Assignment: which of several models a client trains. To add a rule: one file here, one line below, one test."""

from turnout.assignment.concept import Concept
from turnout.assignment.drift import Drift
from turnout.assignment.given import Given
from turnout.assignment.lowest_loss import LowestLoss

__all__ = ["Concept", "Drift", "Given", "LowestLoss"]
