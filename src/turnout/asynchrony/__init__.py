"""Asynchrony: aggregation without waiting for every client. To add a rule: one file here, one line below, one test."""

from turnout.asynchrony.fedbuff import FedBuff

__all__ = ["FedBuff"]
