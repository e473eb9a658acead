"""How the model moves. To add a rule: one file here, one line below, one test."""

from turnout.server.sgd import SGD

__all__ = ["SGD"]
