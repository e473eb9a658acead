"""The bar for models bound by arithmetic: a sequential loop without its waste, on two worker threads.

Clients run side by side, each with one operation thread, so both cores are full. No copy of the model object and no
optimiser: each worker keeps one module, is handed the parameters, and updates them in place.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.models import build, mean_loss
from benchmarks.workloads import Workload, samples, shuffled_batches

WORKERS = 2


class TunedThreads:
    """FedAvg on worker threads."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.x, self.y = map(torch.from_numpy, samples(workload))
        self.model = build(workload)
        self.locals = [build(workload) for _ in range(WORKERS)]
        self.rng = np.random.default_rng(1)
        self.pool = ThreadPoolExecutor(WORKERS, initializer=torch.set_num_threads, initargs=(1,))

    def round(self) -> None:
        """Draw batches, let the workers share the clients, average."""
        batches = torch.from_numpy(shuffled_batches(self.workload, self.rng))
        sums = list(self.pool.map(self._share, range(WORKERS), [batches] * WORKERS))
        with torch.no_grad():
            for param, *parts in zip(self.model.parameters(), *sums, strict=True):
                param.copy_(sum(parts) / len(batches))

    def _share(self, worker: int, batches: Tensor) -> list[Tensor]:
        """Fit every second client and return the sum of their parameters."""
        params = list(self.locals[worker].parameters())
        total = [torch.zeros_like(param) for param in params]
        for client in range(worker, len(batches), WORKERS):
            with torch.no_grad():
                for param, start in zip(params, self.model.parameters(), strict=True):
                    param.copy_(start)
            for positions in batches[client]:
                self._step(worker, client, positions)
            torch._foreach_add_(total, [param.detach() for param in params])
        return total

    def _step(self, worker: int, client: int, positions: Tensor) -> None:
        module = self.locals[worker]
        loss = F.cross_entropy(module(self.x[client][positions]), self.y[client][positions])
        params = list(module.parameters())
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            torch._foreach_add_(params, grads, alpha=-self.workload.lr)

    def loss(self) -> float:
        """Return the mean training loss of the averaged model."""
        return mean_loss(self.model, self.x, self.y)
