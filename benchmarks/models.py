"""The models of the workloads as ordinary PyTorch modules, and the loss they are judged by."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.workloads import Workload


class NextCharacter(nn.Module):
    """Embedding 8, two LSTM layers of 256, a linear head on the last position."""

    def __init__(self, num_characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, num_characters)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the logits of the next character."""
        hidden, _ = self.lstm(self.embedding(characters))
        return self.head(hidden[:, -1])


def build(workload: Workload) -> nn.Module:
    """Return the workload's model; the same parameters on every call."""
    torch.manual_seed(0)
    classes = workload.num_classes
    if workload.name == "W1":
        return nn.Sequential(nn.Linear(60, classes))
    if workload.name == "W2":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes))
    if workload.name == "W3":
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, classes),
        )
    if workload.name == "W5":
        return pfl_research_cnn(classes)
    if workload.name == "digits":
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))
    return NextCharacter(classes)


def pfl_research_cnn(classes: int) -> nn.Module:
    """Return the network of pfl-research's CIFAR-10 benchmark: `simple_cnn` in its benchmarks/model/pytorch/cnn.py."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes),
    )  # fmt: skip
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return model


@torch.no_grad()
def mean_loss(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the mean loss over every client's samples: contenders that do the same work end close together."""
    model.eval()
    pairs = zip(x.flatten(0, 1).split(500), y.flatten().split(500), strict=True)
    total = sum(float(F.cross_entropy(model(inputs), labels, reduction="sum")) for inputs, labels in pairs)
    model.train()
    return total / y.numel()
