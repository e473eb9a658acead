"""The clients' losses along the way, counted with as few operations as can be."""

import torch
from torch import Tensor

from turnout.losses import Loss
from turnout.streams import Floats

MOST_HELD = 32  # outputs kept before their losses are worked out together


class Tally:
    """Adds up each row's mini-batch losses over the steps it takes."""

    def __init__(self, rows: int, loss: Loss, device: torch.device) -> None:
        self.loss = loss
        self.totals = torch.zeros(rows, dtype=torch.float64, device=device)
        self.held: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, losses: Tensor) -> None:
        """Add the losses of the first rows."""
        self.totals[: len(losses)] += losses

    def add_outputs(self, out: Tensor, y: Tensor, weights: Tensor | None) -> None:
        """Add the losses of these outputs, later and several steps at once; nothing may be changed meanwhile."""
        if self.held and (len(self.held) == MOST_HELD or len(self.held[0][0]) != len(out)):
            self._work_out()
        self.held.append((out, y, weights))

    def _work_out(self) -> None:
        outs, ys, weights = zip(*self.held, strict=True)
        self.held = []
        out, y = torch.stack(outs), torch.stack(ys)  # (steps, rows, batch, …)
        each = self.loss(out.flatten(0, 2), y.flatten(0, 2)).view(y.shape[:3])
        if weights[0] is None:
            self.add(each.mean(2).double().sum(0))
        else:
            self.add((each * torch.stack(weights)).sum(2).double().sum(0))

    def sums(self) -> Floats:
        """Return the sum of each row's mini-batch losses."""
        if self.held:
            self._work_out()
        sums: Floats = self.totals.cpu().numpy()
        return sums
