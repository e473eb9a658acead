"""Widths: how much of the model a client trains. To add a rule: one file here, one line below, one test."""

from turnout.width.architectures import Architectures
from turnout.width.nested import Nested
from turnout.width.ordered import Ordered
from turnout.width.random import Random
from turnout.width.rolling import Rolling

__all__ = ["Architectures", "Nested", "Ordered", "Random", "Rolling"]
