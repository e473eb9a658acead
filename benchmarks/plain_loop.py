"""The floor every framework has: copy the model, torch.optim.SGD, one client after another."""

import copy

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.models import build, mean_loss
from benchmarks.workloads import Workload, samples, shuffled_batches


class PlainLoop:
    """FedAvg as one would write it first."""

    def __init__(self, workload: Workload, threads: int) -> None:
        self.workload, self.threads = workload, threads
        self.x, self.y = map(torch.from_numpy, samples(workload))
        self.model = build(workload)
        self.rng = np.random.default_rng(1)

    def round(self) -> None:
        """Draw batches, train every client, average."""
        torch.set_num_threads(self.threads)
        batches = torch.from_numpy(shuffled_batches(self.workload, self.rng))
        states = []
        for client, steps in enumerate(batches):
            local = copy.deepcopy(self.model)
            optimiser = torch.optim.SGD(local.parameters(), lr=self.workload.lr)
            for positions in steps:
                optimiser.zero_grad()
                output = local(self.x[client][positions])
                F.cross_entropy(output, self.y[client][positions]).backward()
                optimiser.step()
            states.append(local.state_dict())
        self.model.load_state_dict({name: sum(s[name] for s in states) / len(states) for name in states[0]})

    def loss(self) -> float:
        """Return the mean training loss of the averaged model."""
        return mean_loss(self.model, self.x, self.y)
