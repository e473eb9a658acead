"""Server optimisers: how the server updates the model. To add a rule: one file here, one line below, one test."""

from turnout.server.fedadagrad import FedAdagrad
from turnout.server.fedadam import FedAdam
from turnout.server.fedavgm import FedAvgM
from turnout.server.fedexp import FedExP
from turnout.server.fedyogi import FedYogi
from turnout.server.sgd import SGD
from turnout.server.slow_momentum import SlowMomentum

__all__ = ["SGD", "FedAdagrad", "FedAdam", "FedAvgM", "FedExP", "FedYogi", "SlowMomentum"]
