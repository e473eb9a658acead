"""Modules of a user's own, which workers import."""

import os
import time
from pathlib import Path

from torch import Tensor, nn


class Slow(nn.Module):
    """A small network that takes its time, and leaves its process's id in a folder while it trains."""

    def __init__(self, folder: str = "", seconds: float = 0.02) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3).double()
        self.folder, self.seconds = folder, seconds

    def forward(self, x: Tensor) -> Tensor:
        if float(x.detach().abs().sum()) >= 0 and self.training and self.folder:  # no tracer follows that
            Path(self.folder, str(os.getpid())).touch()
            time.sleep(self.seconds)
        out: Tensor = self.layer(x)
        return out


FIRST = 1e3  # size of the inputs of the client that LateFirst is late for


class LateFirst(nn.Module):
    """A network whose first client takes longer than all others: its block comes back last."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and float(x.detach().abs().max()) > FIRST / 2:  # no tracer follows that
            time.sleep(0.3)
        out: Tensor = self.layer(x)
        return out
