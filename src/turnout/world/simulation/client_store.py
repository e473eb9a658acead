"""The client store: what simulated clients remember from round to round, one table of rows per name.

A table is made when it is first needed. It lies in memory, or in a temporary file beyond a budget, and is saved with
the run, of each checkpoint only the rows that changed. Rows written in a round are kept if the server step is.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.trust import Findings, fitting
from turnout.ids import is_among
from turnout.protocols import Local, Memory
from turnout.requests import Fit, Probe, Settle, Settled, Steps, Trained
from turnout.row_table import RowTable, weighted_sum
from turnout.rows import finite_rows, is_finite

TABLE = "store "  # begins the name of a saved table
SOLVER = "solver "  # begins the name of a table of solver state


@dataclass(slots=True)
class ClientStore:
    """Named rows per client, of the model's shape."""

    num_clients: int
    budget: int  # bytes of memory that one table may take
    tables: dict[str, RowTable] = field(default_factory=dict)
    solver_state: dict[str, tuple[Ids, Tensor]] = field(default_factory=dict)  # of this round, by entry: not kept yet

    @classmethod
    def of(cls, memory: Memory, num_clients: int, budget: int) -> "ClientStore":
        """Return the store with the tables that were saved."""
        saved = {name.removeprefix(TABLE): table for name, table in memory.items() if name.startswith(TABLE)}
        return cls(num_clients, budget, saved)

    def saved(self) -> Memory:
        """Return the tables, by the names under which they are saved."""
        return {f"{TABLE}{name}": table for name, table in self.tables.items()}

    def table(self, name: str, model: Tensor) -> RowTable:
        """Return the table of that name; a new one has a row of zeros per client."""
        if name not in self.tables:
            self.tables[name] = RowTable(self.num_clients, model, self.budget)
        return self.tables[name]

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
            self._hold(name, clients, rows.detach())
        return replace(answer, kept={}, reasons=reasons)

    def _hold(self, name: str, clients: Ids, rows: Tensor) -> None:
        """Hold rows beside those of other clients that have trained in this round."""
        before, held = self.solver_state.get(name, (clients[:0], rows[:0]))
        others = np.flatnonzero(~is_among(before, clients))
        everyone = np.concatenate([before[others], clients])
        order = np.argsort(everyone)
        if len(others):
            rows = torch.cat([held[torch.from_numpy(others)], rows])[torch.from_numpy(order)]
        self.solver_state[name] = (everyone[order], rows)

    def _settle_solver_state(self, accepted: Ids, model: Tensor) -> None:
        for name, (clients, rows) in self.solver_state.items():
            place = torch.from_numpy(np.searchsorted(clients, accepted))
            table = self.table(f"{SOLVER}{name}", model)
            table.stage()
            table.put(accepted, rows[place])

    def mean(self, name: str, weights: Floats) -> Tensor | None:
        """Return Σ_i w_i row_i; None where nobody remembers anything."""
        return weighted_sum(self.tables[name], weights) if name in self.tables else None

    def settle(self, request: Settle) -> Steps[Settled]:
        """Write the new rows of accepted clients, for the time being, and return the mean of all rows."""
        order, facts, trained = request.order, request.facts, request.trained
        self._settle_solver_state(facts.clients, order.model)
        kept, shared = order.local.client_state, cast(Tensor, order.shared)
        if kept is None:
            return Settled(shared=None)
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
        return Settled(shared=mean, finite=finite, samples=samples)

    def close(self, *, kept: bool) -> None:
        """Keep what was written since the last round, or forget it."""
        self.solver_state = {}
        for table in self.tables.values():
            if table.is_staged:
                table.commit() if kept else table.undo()
