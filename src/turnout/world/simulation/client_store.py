"""The client store: what simulated clients remember from round to round, one table of rows per name.

A table is made when it is first needed. It lies in memory, or in a temporary file beyond a budget, and is saved with
the run, of each checkpoint only the rows that changed. Rows written in a round are kept if the server step is.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Bools, Floats, Ids
from turnout.coordinator.findings import Findings
from turnout.coordinator.probe_checks import fitting
from turnout.costs import Costs
from turnout.ids import is_among
from turnout.learned import Learned
from turnout.protocols import Local, Memory
from turnout.requests import Fit, Probe, Settle, Settled, Steps, Trained
from turnout.row_table import RowTable, weighted_sum
from turnout.rows import finite_rows, is_finite

TABLE = "store "  # begins the name of a saved table
SOLVER = "solver "  # begins the name of a table of solver state
PERSONAL = "personal "  # begins the name of a table of what clients keep for themselves
FIRST_MODEL, FIRST_BUFFERS = "first model", "first buffers"


@dataclass(slots=True)
class ClientStore:
    """Named rows per client."""

    num_clients: int
    budget: int  # bytes of memory that one table may take
    tables: dict[str, RowTable] = field(default_factory=dict)
    first_model: Tensor | None = None  # the model before the first round, where clients keep models of their own
    first_buffers: Tensor | None = None  # its running statistics, if it has any
    waiting: dict[str, tuple[Ids, Tensor]] = field(default_factory=dict)  # new rows of this round, by table
    costs: Costs = field(default_factory=Costs)  # of what clients did for themselves in this round

    @classmethod
    def of(cls, memory: Memory, num_clients: int, budget: int) -> "ClientStore":
        """Return the store with the tables that were saved."""
        saved = {name.removeprefix(TABLE): table for name, table in memory.items() if name.startswith(TABLE)}
        return cls(num_clients, budget, saved, memory.get(FIRST_MODEL), memory.get(FIRST_BUFFERS))

    def saved(self) -> Memory:
        """Return the tables, by the names under which they are saved."""
        tables = {f"{TABLE}{name}": table for name, table in self.tables.items()}
        first = {FIRST_MODEL: self.first_model, FIRST_BUFFERS: self.first_buffers}
        return tables | {name: value for name, value in first.items() if value is not None}

    def table(self, name: str, like: Tensor, first: Tensor | None = None) -> RowTable:
        """Return the table of that name; a new one has one row like this per client: `first`, or zeros."""
        if name not in self.tables:
            self.tables[name] = RowTable(self.num_clients, like, self.budget)
        self.tables[name].first = first
        return self.tables[name]

    def own_table(self, name: str, first: Tensor) -> RowTable:
        """Return a table of what clients keep for themselves."""
        return self.table(f"{PERSONAL}{name}", first, first)

    def room(self, table: RowTable, count: int) -> Tensor | None:
        """Return memory for new rows of a table; None where it holds rows of this round that are not settled yet."""
        is_used = any(self.tables[name] is table for name in self.waiting)
        return None if is_used else table.spare(count)

    def keep(self, clients: Ids, learned: Learned) -> int:
        """Hold what clients learned for themselves until their updates are settled; return how many rows are no use.

        A row that is not finite is left out, and the client keeps the one it had: what it sends does not depend on it.
        """
        self.costs += learned.costs
        sound = np.ones(len(clients), dtype=bool)
        for rows in learned.rows.values():
            sound &= finite_rows([rows])
        for name, rows in learned.rows.items():
            if f"{PERSONAL}{name}" not in self.tables:  # written before it was ever read
                first = self.first_model if rows.shape[1] == cast(Tensor, self.first_model).numel() else None
                self.table(f"{PERSONAL}{name}", rows[0], first)
            useful = rows.detach() if sound.all() else rows.detach()[torch.from_numpy(sound)]
            self._hold(f"{PERSONAL}{name}", clients[sound], useful)
        return int((~sound).sum())

    def has_kept(self) -> Bools | None:
        """Return which clients keep something that they trained, by id; None where clients keep nothing."""
        own = [table.seen for name, table in self.tables.items() if name.startswith(PERSONAL)]
        return np.logical_or.reduce(own) if own else None

    def solver_tables(self, local: Local, model: Tensor) -> dict[str, RowTable]:
        """Return the table of each entry of its state that a solver keeps."""
        return {name: self.table(f"{SOLVER}{name}", model) for name in local.keeps}

    def receive(self, request: Fit, answer: Any) -> Any:
        """Hold the solver state that came with updates until they are settled; return the updates without it.

        An update whose state cannot be kept gets the reason, and is rejected for it.
        """
        if not request.kept or not isinstance(answer, Trained) or not np.array_equal(answer.clients, request.clients):
            return answer
        clients, shape, reasons = request.clients, (len(request.clients), request.model.numel()), dict(answer.reasons)
        for name in request.kept:
            rows = answer.kept.get(name)
            if not isinstance(rows, Tensor) or tuple(rows.shape) != shape or rows.dtype != request.model.dtype:
                reasons |= dict.fromkeys(clients.tolist(), f"the solver state {name!r} does not fit the model")
                continue
            reasons |= dict.fromkeys(clients[~finite_rows([rows])].tolist(), f"the solver state {name!r} is not finite")
            self._hold(f"{SOLVER}{name}", clients, rows.detach())
        return replace(answer, kept={}, reasons=reasons)

    def _hold(self, name: str, clients: Ids, rows: Tensor) -> None:
        """Hold rows beside those of other clients that have trained in this round."""
        before, rows_before = self.waiting.get(name, (clients[:0], rows[:0]))
        others = np.flatnonzero(~is_among(before, clients))
        everyone = np.concatenate([before[others], clients])
        order = np.argsort(everyone)
        if len(others):
            rows = torch.cat([rows_before[torch.from_numpy(others)], rows])[torch.from_numpy(order)]
        self.waiting[name] = (everyone[order], rows)

    def _settle_waiting(self, accepted: Ids) -> None:
        """Write the new rows of accepted clients, for the time being."""
        for name, (clients, rows) in self.waiting.items():
            here = accepted[is_among(accepted, clients)]
            if len(here) < len(clients):
                rows = rows[torch.from_numpy(np.searchsorted(clients, here))]
            table = self.tables[name]
            table.stage()
            table.put(here, rows)

    def mean(self, name: str, weights: Floats) -> Tensor | None:
        """Return Σ_i w_i row_i; None where nobody remembers anything."""
        return weighted_sum(self.tables[name], weights) if name in self.tables else None

    def settle(self, request: Settle) -> Steps[Settled]:
        """Write the new rows of accepted clients, for the time being, and return the mean of all rows."""
        order, facts, trained = request.order, request.facts, request.trained
        self._settle_waiting(facts.clients)
        costs, self.costs = self.costs, Costs()
        beside: dict[str, Any] = {
            "gradients": costs.gradient_evaluations,
            "bytes_up": costs.bytes_up,
            "bytes_down": costs.bytes_down,
        }
        kept, shared = order.local.client_state, cast(Tensor, order.shared)
        if kept is None:
            return Settled(shared=None, samples=costs.probe_evaluations, **beside)
        table, clients, samples = self.table(kept.name, order.model), facts.clients, 0
        table.stage()
        weights = shared.new_tensor(facts.weights)
        if kept.source == "gradient":
            probe = Probe(round=order.round, streams=order.streams, model=order.model, buffers=order.buffers,
                          clients=clients, what="gradient")  # fmt: skip
            findings = Findings()
            probed = fitting(probe, (yield probe), findings)
            after, samples = probed.gradient, probed.samples
            mean = shared + weights @ (after - table.take(clients))
            finite = not findings.refused
        elif trained.next_rows is not None and trained.next_sum is not None:
            after = trained.next_rows
            mean = shared * (1.0 - float(facts.weights.sum())) + trained.next_sum
            finite = True  # checked when they came
        else:  # updates that a filter had trained, or that an attacker forged
            change = cast(Tensor, trained.delta) * shared.new_tensor(kept.scale(facts))[:, None] - shared
            after = table.take(clients) + change
            mean, finite = shared + weights @ change, is_finite(after)
        table.put(clients, after)
        return Settled(shared=mean, finite=finite, samples=samples + costs.probe_evaluations, **beside)

    def close(self, *, kept: bool) -> None:
        """Keep what was written since the last round, or forget it."""
        self.waiting, self.costs = {}, Costs()
        for table in self.tables.values():
            if table.is_staged:
                table.commit() if kept else table.undo()
