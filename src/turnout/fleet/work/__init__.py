"""How much of the asked work gets done. To add a model: one file here, one line below, one test."""

from turnout.fleet.work.complete import Complete

__all__ = ["Complete"]
