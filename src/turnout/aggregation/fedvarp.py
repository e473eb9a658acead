"""FedVARP: every client that is not asked is stood in for by the last change it sent.

Intuition: yesterday's answer of an absent client is a better guess than none.

    mean      v = (1/|S|) Σ_{i∈S} (Δ_i − y_i) + (1/N) Σ_j y_j          unbiased if uniform over all clients
    ht        v = Σ_{i∈S} (p_i / π_i) (Δ_i − y_i) + Σ_j p_j y_j        unbiased given who is up; needs π_i
    ht-fleet  v = Σ_{i∈S} (p_i / (q_i π_i)) (Δ_i − y_i) + Σ_j p_j y_j   unbiased over who is up, too; needs q_i
    then      y_i ← Δ_i for i ∈ S                                        after v, which uses the old y

π_i is how likely the selection asks a client that is up, and q_i how likely the client is up (see FedAvg). Given who is
up, the mean of `ht` is Σ p_i Δ_i over those and Σ p_j y_j over the others. Where nobody answers, both forms step on
Σ_j p_j y_j, without which they would be biased; with `mean` such a round has no step.

A client drawn m times counts m times in Σ_{i∈S} and |S|. y is 0 until a client is first heard. The mean of y is
carried along, so a round costs O(|S|·d); it is summed afresh only when clients come or go. `normalise_by_lr` keeps
Δ_i / η_l and multiplies by the round's η_l (the cohort's mean), so that memories survive a decaying rate.

Reduces to: FedAvg under full participation, and in the first round.
Differs from the paper: the weighted form is new, for clients with unequal data.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.fedavg import participation_weights, weighting_objections
from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, Population, View, as_tensor
from turnout.row_table import RowTable, weighted_sum
from turnout.rows import Facts, Rows
from turnout.settings import rule

CACHED_BYTES = 4 << 20  # and taken out, where they do not lie side by side, in blocks that stay in the cache


@dataclass(frozen=True, slots=True)
class Recollection:
    """A table of rows, the share of each row in their mean, and that mean."""

    table: RowTable
    shares: Floats
    mean: Tensor  # Σ_j shares_j y_j, in double precision: small changes are added to it for a whole run

    def memory(self) -> Memory:
        """Return what is kept for the next round."""
        return {"table": self.table, "shares": self.shares, "mean": self.mean}

    @property
    def num_bytes(self) -> int:
        """Bytes held: the table and its mean."""
        return self.table.bytes + self.mean.numel() * self.mean.element_size()


def recollect(memory: Memory, view: View, shares: Floats) -> Recollection:
    """Return what was kept, with its mean under these shares; zeros in the first round."""
    if "table" not in memory:
        table = RowTable(len(shares), view.model, view.table_budget)
        return Recollection(table, shares, torch.zeros_like(view.model, dtype=torch.float64))
    if np.array_equal(memory["shares"], shares):
        return Recollection(memory["table"], shares, memory["mean"])
    return Recollection(memory["table"], shares, weighted_sum(memory["table"], shares))


def exchange(table: RowTable, clients: Ids, fresh: Tensor, shares: Floats) -> Tensor:
    """Return Σ_i shares_ki (Δ_i − y_i) for each k, and let Δ_i take the place of y_i."""
    weights = as_tensor(shares, fresh)
    total = weights @ fresh
    if len(clients) == 0:
        return total
    held = table.run_of(clients)
    block = len(clients) if held is not None else max(1, CACHED_BYTES // (table.size * fresh.element_size()))
    for begin in range(0, len(clients), block):
        some = slice(begin, begin + block)
        total.addmm_(weights[:, some], table.take(clients[some]) if held is None else held, alpha=-1.0)
    table.put(clients, fresh)
    return total


def client_shares(population: Population, by_data: bool) -> Floats:
    """Return p_j of every client, or 1/N; 0 for clients that are not in the objective."""
    if by_data:
        return population.weights
    counted = np.ones(population.num_clients) if population.counted is None else population.counted
    return counted / max(population.num_counted, 1)


def round_rate(facts: Facts, view: View, ask: Ask) -> float:
    """Return the round's η_l: the mean over the draws, or over all clients where nobody answered."""
    if len(facts) == 0:
        return float(ask.learning_rates(np.arange(view.population.num_clients)).mean())
    return float((facts.local_lr * facts.multiplicity).sum() / facts.num_draws)


@rule("aggregation")
class FedVARP:
    """Variance reduction at the server, with one remembered change per client."""

    is_weighted_sum: ClassVar[bool] = False  # the direction is more than coefficients times rows
    weighting: Literal["mean", "ht", "ht-fleet"] = "mean"  # clients count alike, or by their data (see above)
    normalise_by_lr: bool = False  # remember Δ_i / η_l: for local learning rates that change

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return v, and remember the changes that came."""
        facts = rows.facts
        kept = recollect(memory, view, client_shares(view.population, self.weighting != "mean"))
        weights = participation_weights(facts, self.weighting)
        fresh, rate, coefficients = rows.delta, 1.0, weights
        if self.normalise_by_lr:
            fresh, rate = rows.delta / as_tensor(facts.local_lr, rows.delta)[:, None], round_rate(facts, view, ask)
            coefficients = weights * rate / facts.local_lr
        both = exchange(kept.table, facts.clients, fresh, np.stack([weights, kept.shares[facts.clients]]))
        direction = (both[0] + kept.mean.to(both.dtype)) * rate
        kept = Recollection(kept.table, kept.shares, kept.mean + both[1])
        return Combined(
            direction=direction,
            coefficients=coefficients,
            memory=kept.memory(),
            metrics={"memory_bytes": float(kept.num_bytes)},
        )

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a fleet does not go with the weighting."""
        return weighting_objections(self.weighting, plan)

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether Σ_j p_j y_j alone is the step of an empty cohort; with `mean` such a round has no step."""
        return self.weighting != "mean"
