"""The clients' losses along the way, counted with as few operations as can be."""

import torch
from torch import Tensor

from turnout.array_types import Floats

MOST_PENDING = 32  # steps kept before their losses are worked out together


class LossAccumulator:
    """Adds up each row's mini-batch losses over the steps it takes."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.totals = torch.zeros(rows, dtype=torch.float64, device=device)
        self.pending: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, losses: Tensor) -> None:
        """Add the losses of the first rows."""
        self.totals[: len(losses)] += losses

    def add_samples(self, total: Tensor, right: Tensor, weights: Tensor | None) -> None:
        """Add the losses log(total) − right of samples, (rows, batch, 1), later and several steps at once.

        `weights` are (rows, batch); None: the mean over the batch.
        """
        if self.pending and (len(self.pending) == MOST_PENDING or self.pending[0][0].shape[0] != total.shape[0]):
            self._work_out()
        self.pending.append((total, right, weights))

    def _work_out(self) -> None:
        totals, rights, weights = zip(*self.pending, strict=True)
        self.pending = []
        each = torch.stack(totals).log_().sub_(torch.stack(rights)).squeeze(3)  # (steps, rows, batch)
        if weights[0] is None:
            self.add(each.mean(2).double().sum(0))
        else:
            self.add((each * torch.stack(weights)).sum(2).double().sum(0))

    def sums(self) -> Floats:
        """Return the sum of each row's mini-batch losses."""
        if self.pending:
            self._work_out()
        sums: Floats = self.totals.cpu().numpy()
        return sums
