"""DivFL: choose the clients whose gradients stand for everyone's.

Intuition: if two clients pull the same way, asking one of them is enough.

    D_ij = ‖γ_i − γ_j‖,  γ_i the full gradient of client i       G(S) = Σ_{i∈A_t} min_{j∈S} D_ij
    S: the medoid argmin_j Σ_i D_ij first, then the client that lowers G most, until |S| = K

    naive       every client is looked at in every pick
    lazy        the same choice; a stale gain is recomputed only when it may be the best
    stochastic  each pick looks at max(K, ⌊share·|A_t|⌋) clients drawn evenly from those not chosen yet

    full         γ of everyone who is up is asked for in every round
    no-overhead  a γ is asked for when its client is first up, and again at x each time the client is chosen

Weights: FedAvg's "ratio" (the authors' code) and "mean" take S as it is. With `represent` a chosen client is drawn
as often as there are clients nearest to it (itself among them), which FedAvg weighs with "mean".

Reduces to: everyone who is up when K >= |A_t|.
Differs from the paper: S stands for those who are up, not for all; refreshed gradients are probes and are billed.
Reference: Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes. ICLR 2022. Code of the authors (melodi-lab/divfl).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, Population, View
from turnout.requests import Probed, Steps
from turnout.row_table import RowTable
from turnout.selection.facility import distances, greedy, lazy_greedy, represented
from turnout.settings import Clients, PositiveShare, When, rule

MOST_CLIENTS = 10_000  # a matrix of distances of 0.8 GB
BLOCK_VALUES = 1 << 24  # of the gradient table read at a time


def redrawn(apart: Tensor, table: RowTable, fresh: Ids) -> Tensor:
    """Return the distances with the rows and columns of these clients computed anew from the table."""
    known, rows, out = np.flatnonzero(table.seen), table.take(fresh), apart.clone()
    step = max(1, BLOCK_VALUES // table.size)
    for at in range(0, len(known), step):
        some = known[at : at + step]
        block = torch.from_numpy(distances(rows, table.take(some)))
        out[torch.from_numpy(fresh)[:, None], torch.from_numpy(some)] = block
        out[torch.from_numpy(some)[:, None], torch.from_numpy(fresh)] = block.T
    return out


@rule("selection")
class DivFL:
    """Clients whose gradients stand for everyone's."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K
    greedy: Literal["naive", "lazy", "stochastic"] = "naive"  # how each pick is looked for
    refresh: Literal["full", "no-overhead"] = "no-overhead"  # when gradients are asked for
    candidates_share: Annotated[PositiveShare, When(greedy="stochastic")] = 0.1  # of the pool, looked at in each pick
    represent: bool = False  # a chosen client counts once for each client nearest to it

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why an aggregation does not go with `represent`."""
        weighting = getattr(plan.aggregation, "weighting", None)
        if self.represent and weighting != "mean":
            yield (
                f'represent = true needs an aggregation with weighting = "mean"; got {weighting}. '
                'Set aggregation.weighting to "mean", or selection.represent to false.'
            )

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why there are too many clients for a matrix of distances."""
        if population.num_clients > MOST_CLIENTS:
            yield (
                f"DivFL needs a distance for every pair of clients, so at most {MOST_CLIENTS} clients; got "
                f'{population.num_clients}. Select with "power-of-choice" or "oort", or use fewer clients.'
            )

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K clients of the pool that stand for it."""
        if self.refresh == "no-overhead" and len(pool):
            choice = yield from self._from_table(pool, view, ask)
            return choice
        if len(pool) <= self.cohort_size:
            return Choice(clients=pool, multiplicity=np.ones(len(pool), dtype=np.int64))
        answer: Probed = yield ask.gradients(pool)
        gradients = cast(Tensor, answer.gradient)
        return self._stand_for(pool, distances(gradients, gradients), view)

    def _from_table(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Choose by the remembered gradients, then ask the chosen for theirs at the round's model."""
        size = view.population.num_clients
        table: RowTable = view.memory["table"] if "table" in view.memory else view.table()
        apart: Tensor = view.memory.get("distances", torch.zeros(size, size, dtype=torch.float64))
        unknown = pool[~table.seen[pool]]
        if len(unknown):
            apart = yield from _asked(unknown, table, apart, ask)
        choice = self._stand_for(pool, apart.numpy()[np.ix_(pool, pool)], view)
        stale = np.setdiff1d(choice.clients, unknown)
        if len(stale):
            apart = yield from _asked(stale, table, apart, ask)
        return replace(choice, memory={"table": table, "distances": apart})

    def _stand_for(self, pool: Ids, apart: Floats, view: View) -> Choice:
        """Return the choice these distances make; clients whose gradient is not finite are passed over."""
        sound = np.isfinite(np.diag(apart))
        if not sound.all():
            return self._stand_for(pool[sound], apart[np.ix_(sound, sound)], view)
        picked = np.sort(self._picked(apart, pool, view))
        counts = np.ones(len(picked), dtype=np.int64)
        if self.represent and len(picked):
            counts = represented(apart, picked)
        return Choice(clients=pool[picked], multiplicity=counts)

    def _picked(self, apart: Floats, pool: Ids, view: View) -> Ids:
        """Return the positions in the pool of those chosen."""
        size = min(self.cohort_size, len(pool))
        if size == len(pool):
            return np.arange(size)
        if self.greedy == "naive":
            return greedy(apart, size)
        if self.greedy == "lazy":
            return lazy_greedy(apart, size)
        offered = np.argsort(view.streams.uniforms("selection", view.round, pool, size), axis=0)
        looked_at = max(self.cohort_size, int(self.candidates_share * len(pool) + 1e-9))
        return greedy(apart, size, offered, looked_at)


def _asked(clients: Ids, table: RowTable, apart: Tensor, ask: Ask) -> Steps[Tensor]:
    """Ask these clients for their gradients and put them in the table; return the new distances."""
    answer: Probed = yield ask.gradients(clients)
    table.put(clients, cast(Tensor, answer.gradient))
    return redrawn(apart, table, clients)
