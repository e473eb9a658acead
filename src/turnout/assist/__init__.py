"""When the server helps itself. To add a rule: one file here, one line below, one test."""

from turnout.assist.safari import Safari

__all__ = ["Safari"]
