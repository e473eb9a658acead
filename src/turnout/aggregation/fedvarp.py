"""FedVARP: the server stores every client's last update and uses it for the clients that are not in the cohort.

Intuition: the last update of an absent client is a better estimate of its next update than zero.

    mean      v = (1/|S|) Σ_{i∈S} (Δ_i − y_i) + (1/N) Σ_j y_j          unbiased if uniform over all clients
    ht        v = Σ_{i∈S} (p_i / π_i) (Δ_i − y_i) + Σ_j p_j y_j        unbiased given the available clients; needs π_i
    ht-fleet  v = Σ_{i∈S} (p_i / (q_i π_i)) (Δ_i − y_i) + Σ_j p_j y_j   unbiased over availability as well; needs q_i
    then      y_i ← Δ_i for i ∈ S                                        after v, which uses the old y

π_i is the probability that an available client is selected, and q_i the probability that a client is available (see
FedAvg). Given the available clients, the expectation of `ht` is Σ p_i Δ_i over them plus Σ p_j y_j over the others. If
no update is returned, `ht` and `ht-fleet` step along Σ_j p_j y_j; without this step they would be biased. With `mean`
such a round takes no step.

A client drawn m times counts m times in Σ_{i∈S} and |S|. y_i is 0 until client i first returns an update. The server
maintains the mean of y incrementally, so a round costs O(|S|·d). It recomputes the mean only when clients join or
leave. `normalise_by_lr` stores Δ_i / η_l and multiplies by the round's η_l (the mean over the cohort), so that stored
updates stay valid when the local learning rate decays.

Reduces to: FedAvg under full participation, and in the first round.
Differs from the paper: the weighted form is new, for clients with unequal data.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.fedavg import participation_weights
from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, Population, View
from turnout.row_table import RowTable, weighted_sum
from turnout.rows import Facts, Rows, as_tensor
from turnout.settings import rule

CACHED_BYTES = 4 << 20  # size of the blocks in which scattered rows are read, so that a block stays in the CPU cache


@dataclass(frozen=True, slots=True)
class WeightedTable:
    """A table of stored updates y_j, the share of each row in their weighted mean, and that mean."""

    table: RowTable
    shares: Floats
    mean: Tensor  # Σ_j shares_j y_j, in float64 because small differences are added to it over a whole run

    def memory(self) -> Memory:
        """Return the memory of the rule for the next round."""
        return {"table": self.table, "shares": self.shares, "mean": self.mean}

    @property
    def num_bytes(self) -> int:
        """Size of the table and its mean."""
        return self.table.bytes + self.mean.numel() * self.mean.element_size()


def restore_table(memory: Memory, view: View, shares: Floats) -> WeightedTable:
    """Return the table in the memory, with its mean under these shares; a table of zeros in the first round."""
    if "table" not in memory:
        table = RowTable(len(shares), view.model, view.table_budget)
        return WeightedTable(table, shares, torch.zeros_like(view.model, dtype=torch.float64))
    if np.array_equal(memory["shares"], shares):
        return WeightedTable(memory["table"], shares, memory["mean"])
    return WeightedTable(memory["table"], shares, weighted_sum(memory["table"], shares))


def replace_rows(table: RowTable, clients: Ids, new: Tensor, shares: Floats) -> Tensor:
    """Replace y_i by Δ_i in the table, and return Σ_i shares_ki (Δ_i − y_i) for each k."""
    weights = as_tensor(shares, new)
    total = weights @ new
    if len(clients) == 0:
        return total
    adjacent = table.run_of(clients)
    block = len(clients) if adjacent is not None else max(1, CACHED_BYTES // (table.size * new.element_size()))
    for begin in range(0, len(clients), block):
        part = slice(begin, begin + block)
        total.addmm_(weights[:, part], table.take(clients[part]) if adjacent is None else adjacent, alpha=-1.0)
    table.put(clients, new)
    return total


def stored_work(memory: Memory, num_clients: int) -> Floats:
    """Return the local work η_l ‖a_j‖₁ in the stored update of each client; 0 for a client without one."""
    work: Floats = memory["work"] if "work" in memory else np.zeros(num_clients)
    return work


def replaced(values: Floats, clients: Ids, new: Floats) -> Floats:
    """Return the values with new ones for these clients."""
    copy = values.copy()
    copy[clients] = new
    return copy


def client_shares(population: Population, by_data: bool) -> Floats:
    """Return p_j of every client, or 1/N; 0 for clients that are not in the objective."""
    if by_data:
        return population.weights
    counted = np.ones(population.num_clients) if population.counted is None else population.counted
    return counted / max(population.num_counted, 1)


def round_local_lr(facts: Facts, view: View, ask: Ask) -> float:
    """Return the round's η_l: the mean over the draws, or over all clients if no update was returned."""
    if len(facts) == 0:
        return float(ask.learning_rates(np.arange(view.population.num_clients)).mean())
    return float((facts.local_lr * facts.multiplicity).sum() / facts.num_draws)


@rule("aggregation")
class FedVARP:
    """Variance reduction at the server, with one stored update per client."""

    is_weighted_sum: ClassVar[bool] = False  # the direction also contains the stored updates
    needs_one_model: ClassVar[bool] = True
    # how client weights correct for client sampling: "mean" gives every client the same weight; "ht" divides p_i by
    # the inclusion probability π_i; "ht-fleet" divides p_i by q_i π_i, with q_i the probability to be available
    weighting: Literal["mean", "ht", "ht-fleet"] = "mean"
    # store Δ_i / η_l instead of Δ_i; true if the local learning rate η_l changes over the rounds, else false
    normalise_by_lr: bool = False

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return v, and store the returned updates."""
        facts = rows.facts
        stored = restore_table(memory, view, client_shares(view.population, self.weighting != "mean"))
        weights = participation_weights(facts, self.weighting)
        new, scale, coefficients, work = rows.delta, 1.0, weights, facts.local_lr * facts.local_work
        if self.normalise_by_lr:
            new, scale = rows.delta / as_tensor(facts.local_lr, rows.delta)[:, None], round_local_lr(facts, view, ask)
            coefficients, work = weights * scale / facts.local_lr, facts.local_work
        all_shares = np.stack([weights, stored.shares[facts.clients]])
        correction, mean_change = replace_rows(stored.table, facts.clients, new, all_shares)
        direction = (correction + stored.mean.to(correction.dtype)) * scale
        old_work = stored_work(memory, len(stored.shares))
        old_shares = replaced(stored.shares, facts.clients, stored.shares[facts.clients] - weights)  # of y_j in v
        stored = WeightedTable(stored.table, stored.shares, stored.mean + mean_change)
        return Combined(
            direction=direction,
            coefficients=coefficients,
            memory=stored.memory() | {"work": replaced(old_work, facts.clients, work)},
            metrics={"memory_bytes": float(stored.num_bytes)},
            reused=old_shares * old_work * scale,
        )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether a round without updates steps along Σ_j p_j y_j; with `mean` it takes no step."""
        return self.weighting != "mean"
