"""MIFA: average the last known gradient direction of every client, however long ago it was heard.

Intuition: a device that is asleep still votes, with its last vote.

    G_i ← Δ_i / η_l                for i ∈ S
    u   = η_l · (1/N) Σ_j G_j      mean;   η_l · Σ_j p_j G_j under ratio

Whoever is not asked counts as not available. Without `wait`, unheard clients count as 0. With `wait` there is no step
until every client of the objective has been heard once: changes are remembered, while the model and the memory of the
server rule (momentum, Adam's moments and its count) stay as they are; the metric waiting_for says how many clients
are missing. In a round in which nobody answers, nobody being up included, the server steps on what it remembers; it
takes no step before it has heard anyone. η_l is the mean local rate of the round's cohort, or of all clients where
nobody answers. Biased while memories are old, but with less variance than FedVARP.

Reduces to: FedAvg when everyone takes part; at a constant η_l, FedVARP with 1/N in place of 1/|S|.
Differs from the paper: waiting keeps what each client sent while waiting; the paper asks all of them once more.
Reference: Gu, Huang, Zhang, Huang. Fast federated learning in the presence of arbitrary device unavailability.
NeurIPS 2021. arXiv:2106.04159.
"""

from typing import ClassVar, Literal

import numpy as np

from turnout.aggregation.fedvarp import Recollection, client_shares, exchange, recollect, round_rate
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Rows
from turnout.settings import rule


@rule("aggregation")
class MIFA:
    """A memory of every client's last change, averaged over all clients."""

    is_weighted_sum: ClassVar[bool] = False  # the direction is more than coefficients times rows
    wait: bool = False  # no step before every client has been heard once
    weighting: Literal["mean", "ratio"] = "mean"  # clients count alike, or by their data

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the mean of all memories, after taking in the changes that came."""
        facts = rows.facts
        kept = recollect(memory, view, client_shares(view.population, self.weighting == "ratio"))
        shares = kept.shares[facts.clients]
        fresh = rows.delta / as_tensor(facts.local_lr, rows.delta)[:, None]  # G_i
        change = exchange(kept.table, facts.clients, fresh, shares[None])[0]
        kept = Recollection(kept.table, kept.shares, kept.mean + change)
        missing = int(np.count_nonzero((kept.shares > 0) & ~kept.table.seen))
        moves = bool(kept.table.seen.any()) and not (self.wait and missing > 0)
        rate = round_rate(facts, view, ask) if moves else 0.0
        return Combined(
            direction=(kept.mean * rate).to(rows.delta.dtype),
            coefficients=shares * rate / facts.local_lr,
            memory=kept.memory(),
            metrics={"memory_bytes": float(kept.num_bytes), "waiting_for": float(missing)},
            moves=moves,
        )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return that memories make a step of their own."""
        return True
