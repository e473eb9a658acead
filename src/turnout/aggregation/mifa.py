"""MIFA: average the last known update of every client, however old it is.

Intuition: an unavailable client still contributes, with its last update.

    G_i ← Δ_i / η_l                for i ∈ S
    u   = η_l · (1/N) Σ_j G_j      mean;   η_l · Σ_j p_j G_j under ratio

A client that is not selected is treated as unavailable. Without `wait`, a client that has not sent an update yet counts
as 0. With `wait`, the server takes no step until every client of the objective has sent one update. It stores the
updates in the meantime; the model and the memory of the server rule (momentum, Adam's moments and step count) do not
change. The metric waiting_for is the number of clients without an update. In a round without updates, even if no client
is available, the server steps along the stored updates; it takes no step before the first update of the run. η_l is the
mean local learning rate of the cohort, or of all clients if no update is returned. The step is biased while stored
updates are old, but has less variance than FedVARP.

Reduces to: FedAvg when everyone takes part; at a constant η_l, FedVARP with 1/N in place of 1/|S|.
Differs from the paper: with `wait` the server keeps the updates sent while it waits; the paper asks all clients once
more.
Reference: Gu, Huang, Zhang, Huang. Fast federated learning in the presence of arbitrary device unavailability.
NeurIPS 2021. arXiv:2106.04159.
"""

from typing import ClassVar, Literal

import numpy as np

from turnout.aggregation.fedvarp import (
    WeightedTable,
    client_shares,
    replace_rows,
    replaced,
    restore_table,
    round_local_lr,
    stored_work,
)
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows, as_tensor
from turnout.settings import rule


@rule("aggregation")
class MIFA:
    """The last update of every client, averaged over all clients."""

    is_weighted_sum: ClassVar[bool] = False  # the direction also contains the stored updates
    needs_one_model: ClassVar[bool] = True
    # take no step before every client has sent one update; true as in the paper, false starts at once
    wait: bool = False
    # weight of a client's stored update: "mean" is 1/N for every client, "ratio" is its data share p_j
    weighting: Literal["mean", "ratio"] = "mean"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Store the returned updates and return the mean of all stored updates."""
        facts = rows.facts
        stored = restore_table(memory, view, client_shares(view.population, self.weighting == "ratio"))
        shares = stored.shares[facts.clients]
        new = rows.delta / as_tensor(facts.local_lr, rows.delta)[:, None]  # G_i
        mean_change = replace_rows(stored.table, facts.clients, new, shares[None])[0]
        stored = WeightedTable(stored.table, stored.shares, stored.mean + mean_change)
        missing = int(np.count_nonzero((stored.shares > 0) & ~stored.table.seen))
        moves = bool(stored.table.seen.any()) and not (self.wait and missing > 0)
        local_lr = round_local_lr(facts, view, ask) if moves else 0.0  # η_l
        old_work = stored_work(memory, len(stored.shares))
        return Combined(
            direction=(stored.mean * local_lr).to(rows.delta.dtype),
            coefficients=shares * local_lr / facts.local_lr,
            memory=stored.memory() | {"work": replaced(old_work, facts.clients, facts.local_work)},
            metrics={"memory_bytes": float(stored.num_bytes), "waiting_for": float(missing)},
            moves=moves,
            reused=local_lr * replaced(stored.shares, facts.clients, np.zeros(len(facts))) * old_work,
        )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return true: a round without updates steps along the stored updates."""
        return True
