"""Server assistance: when the server trains on its own samples. To add a rule: one file, one line below, one test."""

from turnout.assist.safari import Safari

__all__ = ["Safari"]
