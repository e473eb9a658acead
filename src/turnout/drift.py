"""Concept drift: which samples each client receives in each time step, and by which concept they are labelled."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids

Blocks = NDArray[np.bool_]  # (clients, time steps): whether a client's samples of a time step are meant


@dataclass(frozen=True, slots=True)
class Drift:
    """How data change with time. A time step is a number of rounds; at its start every client receives new samples.

    There is one more time step of samples than of training: a model is measured on the samples of the next time step,
    which it has not been trained on.
    """

    sizes: Ids  # (clients, time steps + 1): number of samples that each client receives
    concepts: Ids  # (clients, time steps + 1): the concept that labels them, from 0
    rounds_per_step: int  # number of rounds R in a time step

    @property
    def num_steps(self) -> int:
        """Number of time steps in which models are trained."""
        return int(self.sizes.shape[1]) - 1

    @property
    def most_rounds(self) -> int:
        """The number of rounds for which there are samples."""
        return self.num_steps * self.rounds_per_step

    def time_step(self, round: int) -> int:
        """Return the time step of a round, from 0; that of round 0 is the first."""
        return max(round - 1, 0) // self.rounds_per_step

    def measured_step(self, round: int) -> int:
        """Return the time step on whose samples models are measured after a round: the next; at round 0 the first."""
        return -(-round // self.rounds_per_step)

    def received(self, round: int, clients: Ids) -> Blocks:
        """Return which samples each of these clients has received by a round."""
        steps = np.arange(self.sizes.shape[1]) <= self.time_step(round)
        return np.broadcast_to(steps, (len(clients), len(steps)))

    def only(self, step: int, clients: Ids) -> Blocks:
        """Return the blocks of one time step."""
        steps = np.arange(self.sizes.shape[1]) == step
        return np.broadcast_to(steps, (len(clients), len(steps)))

    def counts(self, clients: Ids, blocks: Blocks) -> Ids:
        """Return the number of samples of each client in its blocks."""
        return np.asarray(np.where(blocks, self.sizes[clients], 0).sum(1))

    def rows(self, clients: Ids, blocks: Blocks) -> Ids:
        """Return the rows of these blocks' samples, client after client, where all samples lie by client and time."""
        ends = np.cumsum(self.sizes).reshape(self.sizes.shape)
        starts = (ends - self.sizes)[clients]
        return np.concatenate(
            [
                np.arange(first, first + size)
                for first, size in zip(starts[blocks].tolist(), self.sizes[clients][blocks].tolist(), strict=True)
            ]
            or [np.zeros(0, dtype=np.int64)]
        )
