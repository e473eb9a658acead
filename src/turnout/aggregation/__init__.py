"""How answers combine. To add a rule: one file here, one line below, one test."""

from turnout.aggregation.fedavg import FedAvg

__all__ = ["FedAvg"]
