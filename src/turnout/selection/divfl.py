"""DivFL: choose the clients whose gradients represent the gradients of all available clients.

Intuition: if two clients have the same gradient, one of them is enough.

    D_ij = ‖γ_i − γ_j‖,  γ_i the full gradient of client i       G(S) = Σ_{i∈A_t} min_{j∈S} D_ij
    S: the medoid argmin_j Σ_i D_ij first, then the client that lowers G most, until |S| = K

    naive       every pick evaluates all clients
    lazy        the same result; an old gain is recomputed only if it may be the best
    stochastic  every pick evaluates max(K, ⌊share·|A_t|⌋) clients, sampled uniformly from those not chosen yet

    full         in every round all available clients send γ
    no-overhead  a client sends γ when it is first available, and again at x each time it is chosen

FedAvg's weightings "ratio" (as in the authors' code) and "mean" average S as it is. With `represent` a chosen client
counts once for every client nearest to it, itself included; FedAvg then needs weighting = "mean".

Reduces to: all available clients when K >= |A_t|.
Differs from the paper: S represents the available clients, not all clients; requests for gradients are counted as cost.
Reference: Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes. ICLR 2022. Code of the authors (melodi-lab/divfl).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.protocols import Ask, Choice, Population, View
from turnout.requests import Probed, Steps
from turnout.row_table import RowTable
from turnout.selection.facility_location import distances, greedy, lazy_greedy, representation_counts
from turnout.settings import Clients, PositiveShare, When, rule

MOST_CLIENTS = 10_000  # the distance matrix then takes 0.8 GB
BLOCK_VALUES = 1 << 24  # values of the gradient table read at a time


def updated_distances(apart: Tensor, table: RowTable, changed: Ids) -> Tensor:
    """Return the distance matrix with the rows and columns of these clients recomputed from the table."""
    known, rows, matrix = np.flatnonzero(table.seen), table.take(changed), apart.clone()
    step = max(1, BLOCK_VALUES // table.size)
    for at in range(0, len(known), step):
        part = known[at : at + step]
        block = torch.from_numpy(distances(rows, table.take(part)))
        matrix[torch.from_numpy(changed)[:, None], torch.from_numpy(part)] = block
        matrix[torch.from_numpy(part)[:, None], torch.from_numpy(changed)] = block.T
    return matrix


@rule("selection")
class DivFL:
    """Clients whose gradients represent those of all available clients."""

    knows_inclusion_prob: ClassVar[bool] = False
    needs_one_model: ClassVar[bool] = True
    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    # greedy algorithm: "naive" evaluates all clients in every pick, "lazy" finds the same cohort faster, "stochastic"
    # evaluates a random part of the clients
    greedy: Literal["naive", "lazy", "stochastic"] = "naive"
    # when clients send gradients: "full" all available clients in every round, "no-overhead" only chosen or new clients
    refresh: Literal["full", "no-overhead"] = "no-overhead"
    # share of the available clients that greedy = "stochastic" evaluates in each pick, above 0 to 1; 0.1 is usual
    candidates_share: Annotated[PositiveShare, When(greedy="stochastic")] = 0.1
    # a chosen client counts once for every client nearest to it (true), or once (false); true needs weighting = "mean"
    represent: bool = False

    @property
    def represents_others(self) -> bool:
        """Whether a chosen client counts once for every client nearest to it."""
        return self.represent

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why there are too many clients for a distance matrix."""
        if population.num_clients > MOST_CLIENTS:
            yield Problem(
                f"DivFL needs a distance for every pair of clients, so at most {MOST_CLIENTS} clients; got "
                f'{population.num_clients}. Select with "power-of-choice" or "oort", or use fewer clients.',
                "selection.use",
            )

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K clients that represent the pool."""
        if self.refresh == "no-overhead" and len(pool):
            choice = yield from self._from_table(pool, view, ask)
            return choice
        if len(pool) <= self.cohort_size:
            return Choice(clients=pool, multiplicity=np.ones(len(pool), dtype=np.int64))
        answer: Probed = yield ask.gradients(pool)
        gradients = cast(Tensor, answer.gradient)
        return self._representatives(pool, distances(gradients, gradients), view)

    def _from_table(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Choose by the stored gradients, then request the chosen clients' gradients at the round's model."""
        size = view.population.num_clients
        table: RowTable = view.memory["table"] if "table" in view.memory else view.table()
        apart: Tensor = view.memory.get("distances", torch.zeros(size, size, dtype=torch.float64))
        unknown = pool[~table.seen[pool]]
        if len(unknown):
            apart = yield from _request_gradients(unknown, table, apart, ask)
        choice = self._representatives(pool, apart.numpy()[np.ix_(pool, pool)], view)
        stale = np.setdiff1d(choice.clients, unknown)
        if len(stale):
            apart = yield from _request_gradients(stale, table, apart, ask)
        return replace(choice, memory={"table": table, "distances": apart})

    def _representatives(self, pool: Ids, apart: Floats, view: View) -> Choice:
        """Return the representatives of the pool; clients with a non-finite gradient are left out."""
        is_finite = np.isfinite(np.diag(apart))
        if not is_finite.all():
            return self._representatives(pool[is_finite], apart[np.ix_(is_finite, is_finite)], view)
        positions = np.sort(self._positions(apart, pool, view))
        counts = np.ones(len(positions), dtype=np.int64)
        if self.represent and len(positions):
            counts = representation_counts(apart, positions)
        return Choice(clients=pool[positions], multiplicity=counts)

    def _positions(self, apart: Floats, pool: Ids, view: View) -> Ids:
        """Return the positions of the representatives in the pool."""
        size = min(self.cohort_size, len(pool))
        if size == len(pool):
            return np.arange(size)
        if self.greedy == "naive":
            return greedy(apart, size)
        if self.greedy == "lazy":
            return lazy_greedy(apart, size)
        orders = np.argsort(view.streams.uniforms("selection", view.round, pool, size), axis=0)
        num_candidates = max(self.cohort_size, int(self.candidates_share * len(pool) + 1e-9))
        return greedy(apart, size, orders, num_candidates)


def _request_gradients(clients: Ids, table: RowTable, apart: Tensor, ask: Ask) -> Steps[Tensor]:
    """Request the gradients of these clients, store them in the table, and return the new distances."""
    answer: Probed = yield ask.gradients(clients)
    table.put(clients, cast(Tensor, answer.gradient))
    return updated_distances(apart, table, clients)
