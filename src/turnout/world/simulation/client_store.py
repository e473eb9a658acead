"""The client store: what simulated clients remember from round to round, one table of rows per name.

A table is made when it is first needed. It lies in memory, or in a temporary file beyond a budget, and is saved with
the run, of each checkpoint only the rows that changed. Rows written in a round are kept if the server step is.
"""

from dataclasses import dataclass, field
from typing import cast

from torch import Tensor

from turnout.array_types import Floats
from turnout.coordinator.trust import Findings, fitting
from turnout.protocols import Memory
from turnout.requests import Probe, Settle, Settled, Steps
from turnout.row_table import RowTable, weighted_sum
from turnout.rows import is_finite

TABLE = "store "  # begins the name of a saved table


@dataclass(slots=True)
class ClientStore:
    """Named rows per client, of the model's shape."""

    num_clients: int
    budget: int  # bytes of memory that one table may take
    tables: dict[str, RowTable] = field(default_factory=dict)

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

    def mean(self, name: str, weights: Floats) -> Tensor | None:
        """Return Σ_i w_i row_i; None where nobody remembers anything."""
        return weighted_sum(self.tables[name], weights) if name in self.tables else None

    def settle(self, request: Settle) -> Steps[Settled]:
        """Write the new rows of accepted clients, for the time being, and return the mean of all rows."""
        order, facts, trained = request.order, request.facts, request.trained
        kept, shared = order.local.client_state, cast(Tensor, order.shared)
        assert kept is not None
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
        for table in self.tables.values():
            if table.is_staged:
                table.commit() if kept else table.undo()
