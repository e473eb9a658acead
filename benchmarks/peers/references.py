"""Rules that no installable peer has right, written out in plain PyTorch: one client and one step after another.

Nothing of turnout is used here, so that what it agrees with is the formula and not its own code.
"""

import math
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.peers.networks import (
    CLASSES,
    FEATURES,
    INNER_LR,
    INNER_STEPS,
    LR,
    MIXING,
    MIXING_LR,
    PULL,
    SERVER_LR,
    EncoderHead,
    Floats,
    Network,
    flat,
)

Batch = tuple[Tensor, Tensor]

WIDTHS = (FEATURES, 6, 5, CLASSES)  # of the network whose clients train parts of it
RATES = (1.0, 0.5, 0.5, 0.25, 0.75)  # of each client


def gradient(parameters: Tensor, batch: Batch) -> Tensor:
    """Return the gradient of the mean loss of a mini-batch."""
    module = EncoderHead(parameters.numpy())
    F.cross_entropy(module(batch[0]), batch[1]).backward()
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None])


def mean_change(given: Network, cohort: list[int], changes: list[Tensor]) -> Tensor:
    """Return the mean of x − x_i, weighted by samples."""
    weights = given.sizes[cohort] / given.sizes[cohort].sum()
    return torch.stack([float(weight) * change for weight, change in zip(weights, changes, strict=True)]).sum(0)


def apfl(given: Network, *, adaptive: bool) -> Floats:
    """Return x and every v_i after each round of APFL."""
    shared = torch.tensor(given.start)
    own = {client: shared.clone() for client in range(len(given.sizes))}
    mixing = dict.fromkeys(own, MIXING)
    path = []
    for round, cohort in enumerate(given.cohorts.tolist()):
        changes = []
        for client in cohort:
            batches, local, mine = given.steps(round, client, "shared"), shared.clone(), own[client]
            if adaptive:
                slope = gradient(mixing[client] * mine + (1 - mixing[client]) * shared, batches[0]) @ (mine - shared)
                mixing[client] = min(1.0, max(0.0, mixing[client] - MIXING_LR * float(slope)))
            share = mixing[client]
            for batch in batches:
                local = local - LR * gradient(local, batch)
                mine = mine - LR * share * gradient(share * mine + (1 - share) * local, batch)
            own[client] = mine
            changes.append(shared - local)
        shared = shared - mean_change(given, cohort, changes)
        path.append(torch.stack([shared, *own.values()]).numpy())
    return np.stack(path)


def pfedme(given: Network) -> Floats:
    """Return w and every θ_i after each round of pFedMe."""
    shared = torch.tensor(given.start)
    own = {client: shared.clone() for client in range(len(given.sizes))}
    path = []
    for round, cohort in enumerate(given.cohorts.tolist()):
        changes = []
        for client in cohort:
            local, inner = shared.clone(), shared.clone()
            for batch in given.steps(round, client, "shared"):
                for _ in range(INNER_STEPS):
                    inner = inner - INNER_LR * (gradient(inner, batch) + PULL * (inner - local))
                local = local - LR * PULL * (local - inner)
            own[client] = inner
            changes.append(shared - local)
        shared = shared - SERVER_LR * mean_change(given, cohort, changes)
        path.append(torch.stack([shared, *own.values()]).numpy())
    return np.stack(path)


class Scaled(nn.Module):
    """Divides what a narrow layer puts out by the share of its units that is there."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs, divided."""
        return inputs / self.share


def network_of(widths: list[int], scaler: bool) -> nn.Sequential:
    """Return linear layers of these widths; with the scaler, hidden ones are scaled to those of the whole network."""
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        layers.append(nn.Linear(inputs, outputs).double())
        if place < len(widths) - 1:
            layers += [Scaled(outputs / WIDTHS[place]) if scaler else nn.Identity(), nn.Tanh()]
    return nn.Sequential(*layers)


def whole_network() -> nn.Sequential:
    """Return the network before the first round."""
    module = network_of(list(WIDTHS), scaler=False)
    draw = torch.Generator().manual_seed(11)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=draw)
    return module


def heterofl(given: Network, *, scaler: bool) -> Floats:
    """Return x after each round of HeteroFL, in which a client trains the first ⌈r d⌉ units of each hidden layer."""
    whole, path = whole_network(), []
    for round, cohort in enumerate(given.cohorts.tolist()):
        totals = {name: torch.zeros_like(value) for name, value in whole.named_parameters()}
        counts = {name: torch.zeros_like(value) for name, value in whole.named_parameters()}
        for client in cohort:
            hidden = [math.ceil(RATES[client] * width) for width in WIDTHS[1:-1]]
            narrow = network_of([FEATURES, *hidden, CLASSES], scaler)
            corners = {name: tuple(map(slice, value.shape)) for name, value in narrow.named_parameters()}
            narrow.load_state_dict({name: whole.get_parameter(name)[corner] for name, corner in corners.items()})
            optimiser = torch.optim.SGD(narrow.parameters(), lr=LR)
            for inputs, labels in given.steps(round, client, "shared"):
                optimiser.zero_grad()
                F.cross_entropy(narrow(inputs), labels).backward()
                optimiser.step()
            for name, value in narrow.named_parameters():
                totals[name][corners[name]] += float(given.sizes[client]) * value.detach()
                counts[name][corners[name]] += float(given.sizes[client])
        with torch.no_grad():
            for name, value in whole.named_parameters():
                value.copy_(torch.where(counts[name] > 0, totals[name] / counts[name].clamp(min=1), value))
        path.append(flat(whole)[None])
    return np.stack(path)
