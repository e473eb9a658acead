"""Data sets. To add one: one file here, one line below, one test. `__all__` lists the data sets only."""

from turnout.data.cifar10 import Cifar10
from turnout.data.concept_drift import ConceptDrift
from turnout.data.converters import from_dataset as from_dataset
from turnout.data.converters import from_flwr as from_flwr
from turnout.data.digits import Digits
from turnout.data.emnist import Emnist
from turnout.data.fashion_mnist import FashionMnist
from turnout.data.federation import Federation as Federation
from turnout.data.federation import Samples as Samples
from turnout.data.federation import from_clients as from_clients
from turnout.data.femnist import Femnist
from turnout.data.hapt import Hapt
from turnout.data.linear_regression import LinearRegression
from turnout.data.mnist import Mnist
from turnout.data.mnist_drift import MnistDrift
from turnout.data.mnist_writers import MnistWriters
from turnout.data.quadratics import Quadratics
from turnout.data.shakespeare import Shakespeare
from turnout.data.synthetic import Synthetic
from turnout.data.synthetic_iid import SyntheticIid
from turnout.data.synthetic_on_demand import SyntheticOnDemand

__all__ = [
    "Cifar10",
    "ConceptDrift",
    "Digits",
    "Emnist",
    "FashionMnist",
    "Femnist",
    "Hapt",
    "LinearRegression",
    "Mnist",
    "MnistDrift",
    "MnistWriters",
    "Quadratics",
    "Shakespeare",
    "Synthetic",
    "SyntheticIid",
    "SyntheticOnDemand",
]
