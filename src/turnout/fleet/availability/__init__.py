"""Who is up. To add a process: one file here, one line below, one test."""

from turnout.fleet.availability.always import Always
from turnout.fleet.availability.bernoulli import Bernoulli

__all__ = ["Always", "Bernoulli"]
