"""Reference models. To add one: one file here, one line below, one test. Any other nn.Module works unchanged."""

from typing import Protocol

import torch
from torch import nn

from turnout.models.char_lstm import CharLSTM
from turnout.models.cnn import CNN
from turnout.models.emnist_cnn import EmnistCNN
from turnout.models.fedexp_cnn import FedExpCNN
from turnout.models.leaf_cnn import LeafCNN
from turnout.models.lenet5 import LeNet5
from turnout.models.mlp import MLP
from turnout.models.point import Point
from turnout.models.resnet18 import ResNet18
from turnout.models.softmax import Softmax
from turnout.models.vgg11 import VGG11

__all__ = [
    "CNN",
    "MLP",
    "VGG11",
    "CharLSTM",
    "EmnistCNN",
    "FedExpCNN",
    "LeNet5",
    "LeafCNN",
    "Point",
    "ResNet18",
    "Softmax",
]


class ModelRule(Protocol):
    """The settings of a model; they build a module for samples of a given shape."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return a new module; every random weight comes from the generator."""
        ...
