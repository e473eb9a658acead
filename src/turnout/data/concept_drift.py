"""Concept drift: small classification tasks whose labels change with time, at different times at different clients.

    sine    x ~ U[0, 1]²     y = 1[x₂ ≤ sin x₁]                    concept 1: the other way round
    circle  x ~ U[0, 1]²     y = 1[‖x − c‖ > r]                    c, r = (0.2, 0.5), 0.15;  concept 1: (0.6, 0.5), 0.25
    sea     x ~ U[0, 10]³    y = 1[x₁ + x₂ ≤ θ]                    θ = 8, 9, 7, 9.5 in concepts 0 to 3

At the start of each time step, every client receives new samples, labelled by the concept that it then has. A client
trains on all samples that it has received so far, unless the assignment says otherwise. After each round, a model is
measured on the samples that clients receive in the next time step, and that it has not seen. Which client has which
concept when is a matrix of change points (`turnout.data.change_points`): a pattern, or a file.

Differs from the paper: the samples of sea are drawn by the formula of Street and Kim, without noise in the labels; the
authors draw from recorded files.
Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799. SEA: Street, Kim. KDD 2001.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.change_points import chosen_concepts
from turnout.data.federation import Federation, Samples
from turnout.data.staged import staged
from turnout.drift import Drift
from turnout.settings import Count, When, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

CIRCLES = (((0.2, 0.5), 0.15), ((0.6, 0.5), 0.25))  # centre and radius of each concept
THRESHOLDS = (8.0, 9.0, 7.0, 9.5)  # of SEA
SHAPES = {"sine": (2, 1.0, 2), "circle": (2, 1.0, 2), "sea": (3, 10.0, 4)}  # inputs, their largest value, concepts


def sine_labels(x: Floats, concept: int) -> NDArray[np.bool_]:
    """Return whether points lie below the sine curve; in concept 1, whether they lie above."""
    return np.asarray((x[:, 1] <= np.sin(x[:, 0])) != (concept == 1))


def circle_labels(x: Floats, concept: int) -> NDArray[np.bool_]:
    """Return whether points lie outside the concept's circle."""
    centre, radius = CIRCLES[concept]
    return np.asarray(((x - np.array(centre)) ** 2).sum(1) > radius**2)


def sea_labels(x: Floats, concept: int) -> NDArray[np.bool_]:
    """Return whether the sum of the first two inputs is at most the concept's threshold."""
    return np.asarray(x[:, 0] + x[:, 1] <= THRESHOLDS[concept])


LABELS: dict[str, Callable[[Floats, int], NDArray[np.bool_]]] = {
    "sine": sine_labels,
    "circle": circle_labels,
    "sea": sea_labels,
}


@rule("data")
class ConceptDrift:
    """Two or three inputs, two classes, and concepts that change with time."""

    task: Literal["sine", "circle", "sea"] = "sine"  # the concepts: "sine" and "circle" have two, "sea" has four
    # which client has which concept when, for ten clients and ten time steps: "A" has two concepts, the others four
    pattern: Annotated[Literal["A", "B", "C", "D"], When(change_points=None)] = "A"
    change_points: str | Path | None = None  # a file of change points in place of a pattern; none is the pattern
    # number of time steps to train in, 1 or more: the first ones of the pattern or file; none is all (usual)
    time_steps: Count | None = None
    rounds_per_step: Count = 10  # number of rounds R in a time step, 1 or more; 200 as in the paper
    samples: Count = 100  # number of samples that a client receives in a time step, 1 or more; 100 to 500 is usual

    def concepts(self) -> Ids:
        """Return the concept of each client in each time step, and in the one after the last."""
        return chosen_concepts(self, self.task, SHAPES[self.task][2])

    def known_drift(self) -> Drift:
        """Return how many samples of which concept each client receives when."""
        concepts = self.concepts()
        return Drift(np.full(concepts.shape, self.samples), concepts, self.rounds_per_step)

    @property
    def sample_form(self) -> SampleForm:
        """The form of a sample."""
        return SampleForm(shape=(SHAPES[self.task][0],), outputs=2)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        drift, (dim, largest, _) = self.known_drift(), SHAPES[self.task]
        concepts = drift.concepts
        x = np.empty((*concepts.shape, self.samples, dim))
        y = np.empty((*concepts.shape, self.samples), dtype=np.int64)
        for (client, step), concept in np.ndenumerate(concepts):
            drawn = streams.generator("concept drift", int(step), int(client)).random((self.samples, dim)) * largest
            x[client, step], y[client, step] = drawn, LABELS[self.task](drawn, int(concept))
        samples = Samples(torch.from_numpy(x.reshape(-1, dim)).float(), torch.from_numpy(y.reshape(-1)))
        return staged(self.task, samples, drift, 2)
