"""A federation with small networks that every library can be given alike, mini-batches and all.

Clients have samples of three classes. The network is an encoder and a head, so that some layers may stay at a client.
Which clients are selected in each round, and which samples each local step uses, is fixed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Purpose = Literal["shared", "own"]

CLIENTS, ROUNDS, COHORT_SIZE = 5, 4, 3
FEATURES, HIDDEN, CLASSES = 4, 5, 3
LR, BATCH_SIZE = 0.2, 5
SHARED_STEPS, OWN_STEPS = 6, 4  # more than a pass over the samples of a client, whose last batch is smaller
STRENGTH = 0.7  # λ of Ditto
MIXING, MIXING_LR = 0.3, 0.5  # α of APFL, and its learning rate where it adapts
PULL, INNER_STEPS, INNER_LR, SERVER_LR = 3.0, 2, 0.2, 0.6  # λ, K, η_p and β of pFedMe


class EncoderHead(nn.Module):
    """A layer that is usually shared, and a layer that may stay at a client."""

    def __init__(self, start: Floats) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh()).double()
        self.head = nn.Linear(HIDDEN, CLASSES).double()
        vector_to_parameters(torch.tensor(start), self.parameters())

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score per class."""
        scores: Tensor = self.head(self.encoder(inputs))
        return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The clients' samples, the first model, and what happens in each round."""

    inputs: Floats  # of all clients, one after another
    labels: Ids
    sizes: Ids  # n_i
    start: Floats  # x⁰, in the order of the module's parameters
    cohorts: Ids  # one row a round, ascending
    shared_batches: Ids  # positions [rounds, clients, steps, samples] of the shared training; −1 is no sample
    own_batches: Ids  # the same of the training that clients do for themselves

    @classmethod
    def load(cls, path: Path) -> "Network":
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(**dict(arrays))

    def save(self, path: Path) -> None:
        """Write everything to an .npz file."""
        np.savez(path, **asdict(self))

    def samples(self, client: int) -> tuple[Tensor, Tensor]:
        """Return the client's inputs and labels."""
        end = int(self.sizes[: client + 1].sum())
        here = slice(end - int(self.sizes[client]), end)
        return torch.tensor(self.inputs[here]), torch.tensor(self.labels[here])

    def steps(self, round: int, client: int, purpose: Purpose) -> list[tuple[Tensor, Tensor]]:
        """Return the mini-batches of the client's local steps in a round, counted from 0."""
        x, y = self.samples(client)
        table = self.shared_batches if purpose == "shared" else self.own_batches
        batches = [torch.from_numpy(row[row >= 0]) for row in table[round, client]]
        return [(x[batch], y[batch]) for batch in batches]

    def passes(self, client: int, purposes: Sequence[Purpose]) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Yield the mini-batches of each pass that a client makes, in the rounds in which it is selected."""
        for round in np.flatnonzero((self.cohorts == client).any(1)):
            for purpose in purposes:
                yield self.steps(int(round), client, purpose)


def flat(module: nn.Module) -> Floats:
    """Return a copy of the module's parameters as one vector."""
    vector: Floats = parameters_to_vector(module.parameters()).detach().cpu().double().numpy().copy()
    return vector
