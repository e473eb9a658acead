"""The limit for small models: W1 and W2 written by hand, nothing general about it.

One row of stacked weights per client, kept (in, out) so that every batched product reads straight. The gradient is
never written to memory: the backward pass multiplies it straight into the weights,

    d ← (softmax(z) − onehot(y)) · η / B        error rows, scaled while they are small
    W ← W − hᵀ d        b ← b − Σ d        d ← (d Wᵀ) ∘ [h > 0]

Clients run in blocks whose weights stay in the cache; the block size is the quickest of a few.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.models import build, mean_loss
from benchmarks.workloads import Workload, samples, shuffled_batches

BLOCKS = {"W1": (10, 25, 50), "W2": (4, 5, 10, 20, 50)}


class HandBatched:
    """FedAvg on a stack of linear layers with ReLU between them."""

    def __init__(self, workload: Workload, threads: int) -> None:
        self.workload, self.threads = workload, threads
        self.x, self.y = map(torch.from_numpy, samples(workload))
        self.flat_x, self.flat_y = self.x.flatten(0, 1), self.y.flatten()
        self.model = build(workload)
        linear = [layer for layer in self.model if isinstance(layer, nn.Linear)]
        self.params = [p.detach().t().contiguous() for layer in linear for p in (layer.weight, layer.bias[:, None])]
        self.rng = np.random.default_rng(1)
        self.block = 0
        self._use(self._quickest_block())

    def _use(self, block: int) -> None:
        self.block = block
        self.rows = [param.new_empty((block, *param.shape)) for param in self.params]  # W, b, W, b, ...

    def _quickest_block(self) -> int:
        start, seconds = [param.clone() for param in self.params], {}
        for block in BLOCKS[self.workload.name]:
            self._use(block)
            self.round()
            laps = []
            for _ in range(3):
                began = time.perf_counter()
                self.round()
                laps.append(time.perf_counter() - began)
            seconds[block] = min(laps)
        self.params, self.rng = start, np.random.default_rng(1)
        return min(seconds, key=seconds.__getitem__)

    @torch.no_grad()
    def round(self) -> None:
        """Draw batches, train block by block, average."""
        torch.set_num_threads(self.threads)
        work = self.workload
        batches = shuffled_batches(work, self.rng) + np.arange(work.num_clients)[:, None, None] * work.num_examples
        positions = torch.from_numpy(batches.transpose(1, 0, 2).copy())  # [steps, clients, batch]
        totals = [torch.zeros_like(param) for param in self.params]
        for first in range(0, work.num_clients, self.block):
            chosen = positions[:, first : first + self.block]
            flat = chosen.reshape(-1)
            x = self.flat_x.index_select(0, flat).view(*chosen.shape, -1)
            y = self.flat_y.index_select(0, flat).view(*chosen.shape, 1)
            for row, param in zip(self.rows, self.params, strict=True):
                row.copy_(param)
            for step in range(work.local_steps):
                train_step(self.rows, x[step], y[step], work.lr)
            for total, row in zip(totals, self.rows, strict=True):
                total += row.sum(0)
        self.params = [total.div_(work.num_clients) for total in totals]

    def loss(self) -> float:
        """Return the mean training loss of the averaged model."""
        with torch.no_grad():
            for param, value in zip(self.model.parameters(), self.params, strict=True):
                param.copy_(value.t().view_as(param))
        return mean_loss(self.model, self.x, self.y)


def train_step(rows: Sequence[Tensor], x: Tensor, y: Tensor, lr: float) -> None:
    """Take one step of every row, in place."""
    weights, biases = rows[0::2], rows[1::2]
    hidden = [x]
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        z = torch.baddbmm(bias, hidden[-1], weight)
        hidden.append(z.relu_() if place < len(weights) - 1 else z)
    error = torch.softmax(hidden.pop(), 2)
    error.scatter_add_(2, y, torch.full((1, 1, 1), -1.0).expand(y.shape)).mul_(lr / y.shape[1])
    for place in reversed(range(len(weights))):
        below = hidden[place]
        passed = None
        if place > 0:
            passed = torch.bmm(error, weights[place].transpose(1, 2))
            passed = torch.ops.aten.threshold_backward(passed, below, 0)
        weights[place].baddbmm_(below.transpose(1, 2), error, alpha=-1)
        biases[place].sub_(error.sum(1, keepdim=True))
        error = passed
