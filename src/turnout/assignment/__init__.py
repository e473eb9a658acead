"""Assignment: which of several models a client trains. To add a rule: one file here, one line below, one test."""

from turnout.assignment.given import Given
from turnout.assignment.lowest_loss import LowestLoss

__all__ = ["Given", "LowestLoss"]
