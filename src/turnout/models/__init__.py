"""Reference models. To add one: one file here, one line below, one test. Any other nn.Module works unchanged."""

from turnout.models.char_lstm import CharLSTM
from turnout.models.cnn import CNN
from turnout.models.emnist_cnn import EmnistCNN
from turnout.models.family import Family
from turnout.models.fedexp_cnn import FedExpCNN
from turnout.models.leaf_cnn import LeafCNN
from turnout.models.lenet5 import LeNet5
from turnout.models.mlp import MLP
from turnout.models.model_rule import ModelRule as ModelRule
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
    "Family",
    "FedExpCNN",
    "LeNet5",
    "LeafCNN",
    "Point",
    "ResNet18",
    "Softmax",
]
