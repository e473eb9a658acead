"""Submodels: which part of the model each client trains, where clients train models of different widths.

A client of a family of models trains the model of its architecture: a part of the family's vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.ids import is_among
from turnout.parameter_grids import Place


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Devices:
    """How fast devices are, and how much work their models are; both by client id."""

    seconds_per_step: Floats | None = None  # of the whole model; None: not asked for, or not known
    step_costs: Floats | None = None  # work of a local step, relative to the whole model's; None: 1 for everyone


@dataclass(frozen=True, slots=True, eq=False)
class Submodel:
    """A part of the model: some units of every hidden layer, and the parameters between them."""

    sizes: tuple[int, ...]  # number of units in each group of units
    # positions of its parameters in the whole model's vector, in the order of its own vector; a Place says them briefly
    where: Tensor | Place
    step_cost: float  # multiply-adds of a local step, relative to a step of the whole model
    is_whole: bool  # nothing is left out
    is_scaled: bool = False  # outputs of cut layers are divided by the share of units that is there, in training

    @property
    def columns(self) -> Tensor:
        """The positions of its parameters in the whole model's vector, in the order of its own vector."""
        return self.where.grids.columns(self.where.number) if isinstance(self.where, Place) else self.where

    @property
    def num_parameters(self) -> int:
        """How many parameters it has."""
        return self.where.grids.size if isinstance(self.where, Place) else self.where.numel()

    @property
    def among(self) -> object:
        """What submodels that lie at the same place, or were cut together, have in common."""
        return self.where.grids if isinstance(self.where, Place) else self.where


def numbers_in_grids(submodels: Sequence[Submodel]) -> Ids:
    """Return the number of each of these submodels, which were cut together, among those of its grids."""
    return np.array([submodel.where.number for submodel in submodels if isinstance(submodel.where, Place)])


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Which labels clients hold, where the logits of the others are 0 in training."""

    held: NDArray[np.bool_]  # (clients, classes)
    of_column: Tensor  # by parameter: the label whose row of the last layer it belongs to; −1: none

    def trained(self, place: int, columns: Tensor) -> Tensor:
        """Return which of these parameters one client trains: not those of labels that it does not hold."""
        every = torch.from_numpy(np.append(self.held[place], True)).to(columns.device)  # the last: of no label
        return every[self.of_column[columns]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FamilyParts:
    """Where the models of a family lie in its vector. The size of a part is the number of its architecture."""

    server: Submodel
    members: tuple[Submodel, ...]  # one for each architecture that clients have
    # positions of the parameters of the last layer, in the order of the module: of the server, then of each member
    last_layers: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Parts:
    """The submodel of each client in one round.

    Where the width changes between local steps, `steps` has a submodel for each: a part of the client's submodel.
    """

    clients: Ids  # ascending
    submodels: tuple[Submodel, ...]  # each once
    which: Ids  # number of each client's submodel
    size: int  # number of parameters of the whole model
    # (clients, steps): number of the submodel of each local step that a client is asked for, −1 beyond its last step;
    # None: its own submodel in all of them
    steps: Ids | None = None
    # a step on a narrower submodel is one on the client's own, whose predictions the narrower one is trained on
    distils: bool = False
    labels: Labels | None = None  # which labels each client holds; None: labels are not masked
    family: FamilyParts | None = None  # the submodels are the members of a family, whose server has a model of its own
    is_sent: bool = True  # False: submodels stay at their clients

    def of(self, clients: Ids) -> Ids:
        """Return the number of the submodel of each of these clients."""
        return np.asarray(self.which[np.searchsorted(self.clients, clients)])

    def numbers(self, clients: Ids) -> Ids:
        """Return how many parameters each of these clients is sent."""
        if not self.is_sent:
            return np.zeros(len(clients), dtype=np.int64)
        counts = np.array([submodel.num_parameters for submodel in self.submodels], dtype=np.int64)
        return np.asarray(counts[self.of(clients)])

    def step_costs(self, clients: Ids) -> Floats:
        """Return the mean cost of a local step of each of these clients, relative to a step of the whole model."""
        costs = np.array([submodel.step_cost for submodel in self.submodels])
        if self.steps is None:
            return np.asarray(costs[self.of(clients)])
        mine = self.steps[np.searchsorted(self.clients, clients)]
        own = self.of(clients)[:, None]
        each = np.where(mine == own, 0.0, costs[mine]) + costs[own] if self.distils else costs[mine]
        return np.asarray(np.where(mine >= 0, each, 0.0).sum(1) / (mine >= 0).sum(1))

    def balance(self, clients: Ids, coefficients: Floats) -> Tensor:
        """Return, for each parameter j, Σ_i c_i / Σ_i c_i m_ij; 0 where none of these clients trains it.

        m_ij is 1 where client i trains parameter j: its submodel has it, and its label, if it has one, is not masked.
        Times Σ_i c_i m_ij Δ_ij it gives the mean over those that train j, on the scale of all coefficients together:
        exactly the sum itself where everyone trains j.
        """
        whose = self.of(clients)
        total, covered = 0.0, torch.zeros(self.size, dtype=torch.float64)
        if self.labels is None and all(self.submodels[number].is_whole for number in np.unique(whose)):
            return covered + float(coefficients.sum() != 0)  # everyone trains everything
        for mine in self._cut_together(whose):
            weights, submodels = coefficients[mine], [self.submodels[number] for number in whose[mine]]
            where = submodels[0].where
            if self.labels is None and isinstance(where, Place):
                where.grids.add_coverage(covered, numbers_in_grids(submodels), weights)
                total += float(np.cumsum(weights)[-1])  # in the order of its sums: exactly what everyone covers
                continue
            columns = submodels[0].columns.cpu()
            by_column = self._weights(clients[mine], weights, columns)
            total += float(weights.sum())
            covered.scatter_add_(0, columns, by_column.expand(len(columns)))
        return torch.where(covered != 0, total / covered, torch.zeros_like(covered))

    def _cut_together(self, whose: Ids) -> list[Ids]:
        """Return places of clients, apart by what was cut together; by submodel where labels are masked."""
        groups: dict[int, list[int]] = {}
        for place in np.argsort(whose, kind="stable").tolist():
            number = int(whose[place])
            groups.setdefault(number if self.labels else id(self.submodels[number].among), []).append(place)
        return [np.array(places) for places in groups.values()]

    def _weights(self, clients: Ids, coefficients: Floats, columns: Tensor) -> Tensor:
        """Return, for each of these parameters of one submodel, the coefficients of the clients that train it."""
        everyone = torch.tensor(coefficients.sum(), dtype=torch.float64)
        if self.labels is None:
            return everyone
        held = self.labels.held[np.searchsorted(self.clients, clients)]
        by_label = [coefficients[each].sum() for each in held.T]
        return torch.tensor([*by_label, everyone], dtype=torch.float64)[self.labels.of_column.cpu()[columns]]

    def masked(self) -> NDArray[np.bool_]:
        """Return whether each client does not hold every label."""
        if self.labels is None:
            return np.zeros(len(self.clients), dtype=bool)
        return np.asarray(~self.labels.held.all(1))

    def keep(self, clients: Ids) -> "Parts":
        """Return the parts of some of the clients."""
        here = is_among(self.clients, clients)
        steps = None if self.steps is None else self.steps[here]
        return Parts(
            clients=self.clients[here],
            submodels=self.submodels,
            which=self.which[here],
            size=self.size,
            steps=steps,
            distils=self.distils,
            labels=None if self.labels is None else replace(self.labels, held=self.labels.held[here]),
            family=self.family,
            is_sent=self.is_sent,
        )
