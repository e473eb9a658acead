"""Who is asked. To add a rule: one file here, one line below, one test."""

from turnout.selection.uniform import Uniform
from turnout.selection.weighted import Weighted

__all__ = ["Uniform", "Weighted"]
