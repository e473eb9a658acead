"""What a client does. To add a solver: one file here, one line below, one test."""

from turnout.local.sgd import SGD

__all__ = ["SGD"]
