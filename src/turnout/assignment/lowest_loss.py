"""Lowest loss: every client takes the model that fits its own training samples best.

Intuition: clients are of a few kinds, and nobody knows who is of which. A client that tries every model finds its kind.

    j_i = argmin_j F_i(θ_j)        ties go to the smallest j

A client of the cohort downloads all M models, computes its loss at each, and trains the best one. At an evaluation
every client does so again: it uses the model that it would train now. With one model there is nothing to compare, and
nobody is asked. Where data drift, newest = true has a client compare and train on the samples of its newest time step
alone: its older samples may have labels of another concept.

Reduces to: the study without an assignment when M = 1 and newest = false.
Differs from the paper: the loss may be that of one mini-batch. A loss that is not a number counts as infinite.
Reference: Ghosh, Chung, Yin, Ramchandran. NeurIPS 2020. arXiv:2006.04088.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.assignment.assigned import Assigned
from turnout.drift import Blocks
from turnout.errors import Problem
from turnout.protocols import Ask, Population, View
from turnout.requests import Probed, Steps
from turnout.settings import Count, When, rule


def lowest(losses: Floats) -> Ids:
    """Return the row with the smallest loss in each column; ties go to the first, and NaN is never the smallest."""
    best: Ids = np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=0)
    return best


def losses_at(
    models: Tensor, clients: Ids, ask: Ask, batch_size: int | None, blocks: Blocks | None = None
) -> Steps[Floats]:
    """Return the loss of each client at each model, one row per model; NaN where a client gave no number."""
    losses = np.full((len(models), len(clients)), np.nan)
    for row, model in enumerate(models):
        probed: Probed = yield replace(ask.losses(clients, batch_size, model), blocks=blocks)
        losses[row] = cast(Floats, probed.loss)
        if probed.unusable is not None:
            losses[row, probed.unusable] = np.nan
    return losses


@rule("assignment")
class LowestLoss:
    """The model with the lowest loss on the client's own training samples."""

    num_models: Count  # number of models M, 1 or more; the number of kinds of clients that are expected, usually 2 to 5
    # number of samples of the mini-batch on which a client compares models, 1 or more; none is all its samples (usual)
    batch_size: Count | None = None
    # where data drift, whether a client compares and trains on the samples of its newest time step alone; false is all
    # its samples so far
    newest: Annotated[bool, When(batch_size=None)] = False

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the data do not suit."""
        if self.newest and population.drift is None:
            yield Problem(
                "LowestLoss with newest = true needs data that change with time; this federation's do not. Set "
                "assignment.newest to false, or data.use to concept-drift.",
                "assignment.newest",
            )

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> Steps[Assigned]:
        """Return the best model of each client."""
        drift = view.population.drift
        blocks = drift.only(drift.time_step(view.round), clients) if self.newest else None
        if len(models) == 1 or len(clients) == 0:
            return Assigned(model_of=np.zeros(len(clients), dtype=np.int64), blocks=blocks)
        losses = yield from losses_at(models, clients, ask, self.batch_size, blocks)
        return Assigned(model_of=lowest(losses), are_sent=True, blocks=blocks)
