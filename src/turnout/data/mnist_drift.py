"""MNIST with drifting labels: two digits swap their labels, at different times at different clients.

    concept 0  the true labels        concept 1  1 and 2 are swapped
    concept 2  3 and 4 are swapped    concept 3  5 and 6 are swapped

At the start of each time step, every client receives new images, none of which anybody has received before. Time steps,
change points and what models are measured on are those of `concept-drift`.

Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from turnout.array_types import Ids
from turnout.data.change_points import chosen_concepts
from turnout.data.federation import Federation, Samples
from turnout.data.mnist import standard_mnist
from turnout.data.staged import staged
from turnout.drift import Drift
from turnout.errors import DataError
from turnout.settings import Count, When, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

SWAPS = ((0, 0), (1, 2), (3, 4), (5, 6))  # labels that each concept swaps


def swapped(labels: Ids, concept: int) -> Ids:
    """Return labels with those that the concept swaps swapped."""
    table, (one, other) = np.arange(10), SWAPS[concept]
    table[[one, other]] = other, one
    return np.asarray(table[labels])


@rule("data")
class MnistDrift:
    """MNIST, with labels that change with time."""

    # which client has which concept when, for ten clients and ten time steps: "A" has two concepts, the others four
    pattern: Annotated[Literal["A", "B", "C", "D"], When(change_points=None)] = "A"
    change_points: str | Path | None = None  # a file of change points in place of a pattern; none is the pattern
    # number of time steps to train in, 1 or more: the first ones of the pattern or file; none is all (usual)
    time_steps: Count | None = None
    rounds_per_step: Count = 10  # number of rounds R in a time step, 1 or more; 200 as in the paper
    samples: Count = 100  # number of images that a client receives in a time step, 1 or more; 100 to 500 is usual
    # folder that holds the files; none looks in TURNOUT_DATA, then in the cache, and then downloads them
    folder: str | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(1, 28, 28), outputs=10)

    def known_drift(self) -> Drift:
        """Return how many images of which concept each client receives when."""
        concepts = chosen_concepts(self, "MnistDrift", len(SWAPS))
        return Drift(np.full(concepts.shape, self.samples), concepts, self.rounds_per_step)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        drift = self.known_drift()
        concepts = drift.concepts
        train, _ = standard_mnist(self.folder)
        needed = concepts.size * self.samples
        if needed > len(train):
            raise DataError(
                f"MnistDrift needs {needed} images for {concepts.shape[0]} clients and {concepts.shape[1]} time steps; "
                f"MNIST has {len(train)}. Lower data.samples to {len(train) // concepts.size} or less."
            )
        rows = streams.generator("mnist drift").permutation(len(train))[:needed]
        labels = train.y.numpy()[rows].reshape(*concepts.shape, self.samples)
        for place, concept in np.ndenumerate(concepts):
            labels[place] = swapped(labels[place], int(concept))
        samples = Samples(train.x[torch.from_numpy(rows)], torch.from_numpy(labels.reshape(-1)))
        return staged("MNIST with drift", samples, drift, 10)
