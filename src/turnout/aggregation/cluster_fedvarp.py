"""ClusterFedVARP: FedVARP with one remembered change per cluster of clients.

Intuition: clients alike can stand in for one another, so a few memories do for all of them.

    v   = (1/|S|) Σ_{i∈S} (Δ_i − y_{c(i)}) + (1/N) Σ_q |C_q| y_q    uses the old y
    y_q ← mean of Δ_i over S ∩ C_q, where somebody of C_q answered

    random   C_q is a keyed balanced split
    labels   C_q is found by k-means of the clients' label distributions
    updates  C_q is random up to round `warm_up`, then found by k-means of the directions of the last changes

Under `ht` the first weight is p_i / π_i, under `ht-fleet` p_i / (q_i π_i), and |C_q| / N becomes Σ_{j∈C_q} p_j; where
nobody answers both step on the memories alone (see FedVARP). For `updates` each change is kept as a
sketch of 32 numbers; when the clusters are found the memories start again at 0, and clients not heard stay where they
were.

Reduces to: FedVARP with one cluster per client; FedAvg (mean) with one cluster, and under full participation.
Differs from the paper: the paper leaves the clustering open; the weighted form is new.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

import warnings
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.fedavg import participation_weights, weighting_objections
from turnout.aggregation.fedvarp import Recollection, client_shares, recollect
from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import Ask, Combined, Memory, Population, View, as_tensor
from turnout.rows import Rows
from turnout.settings import Clients, Count, When, rule
from turnout.streams import Streams

SKETCH = 32  # numbers kept of a change while clusters are being learnt


def balanced_clusters(num_clients: int, num_clusters: int, streams: Streams) -> Ids:
    """Return a cluster per client, at random, with sizes that differ by one at most."""
    clusters = np.empty(num_clients, dtype=np.int64)
    clusters[streams.generator("clusters").permutation(num_clients)] = np.arange(num_clients) % num_clusters
    return clusters


def nearest_clusters(points: Floats, num_clusters: int, streams: Streams) -> Ids:
    """Return the k-means cluster of each point, the same on any machine and number of threads."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed = int(streams.generator("clusters").integers(2**31))
    means = KMeans(n_clusters=min(num_clusters, len(points)), n_init=4, random_state=seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters: some clusters stay empty
        return np.asarray(means.fit_predict(points), dtype=np.int64)


def cluster_shares(clusters: Ids, shares: Floats, num_clusters: int) -> Floats:
    """Return the sum of the clients' shares in each cluster: |C_q| / N when they count alike."""
    totals = np.zeros(num_clusters)
    np.add.at(totals, clusters, shares)
    return totals


def sketched(delta: Tensor, streams: Streams) -> Floats:
    """Return a short stand-in for each row's direction: signed sums over random groups of coordinates, of length 1."""
    rng, size = streams.generator("sketch"), delta.shape[1]
    group = torch.from_numpy(rng.integers(SKETCH, size=size)).to(delta.device)
    sign = torch.from_numpy(rng.integers(2, size=size) * 2 - 1).to(delta)
    sums = torch.zeros(len(delta), SKETCH, dtype=delta.dtype, device=delta.device).index_add_(1, group, delta * sign)
    return torch.nn.functional.normalize(sums.double()).cpu().numpy()


@rule("aggregation")
class ClusterFedVARP:
    """Variance reduction at the server, with one remembered change per cluster."""

    is_weighted_sum: ClassVar[bool] = False  # the direction is more than coefficients times rows
    num_clusters: Clients  # Q
    clusters: Literal["random", "labels", "updates"] = "random"  # what clients of a cluster have in common
    warm_up: Annotated[Count, When(clusters="updates")] = 10  # the round after which "updates" clusters the clients
    weighting: Literal["mean", "ht", "ht-fleet"] = "mean"  # clients count alike, or by their data (see above)

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return v, and remember the mean change of each cluster that answered."""
        facts, delta = rows.facts, rows.delta
        clusters: Ids = memory["clusters"] if "clusters" in memory else self._first_clusters(view)
        by_client = client_shares(view.population, self.weighting != "mean")
        kept = recollect(memory, view, cluster_shares(clusters, by_client, self.num_clusters))
        weights = participation_weights(facts, self.weighting)
        touched, place = np.unique(clusters[facts.clients], return_inverse=True)
        member = np.zeros((len(touched), len(facts)))
        member[place, np.arange(len(facts))] = facts.multiplicity
        fresh = as_tensor(member / member.sum(1, keepdims=True), delta) @ delta
        old = kept.table.take(touched)
        stood_in = cluster_shares(place, weights, len(touched))  # how much of each old y_q the draws take away
        direction = as_tensor(weights, delta) @ delta - as_tensor(stood_in, old) @ old + kept.mean.to(delta.dtype)
        mean = kept.mean + as_tensor(kept.shares[touched], old) @ (fresh - old)
        kept.table.put(touched, fresh)
        kept = Recollection(kept.table, kept.shares, mean)
        return Combined(
            direction=direction,
            coefficients=weights,
            memory=self._learnt(kept.memory() | {"clusters": clusters}, memory, rows, view),
            metrics={"memory_bytes": float(kept.num_bytes)},
        )

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a fleet does not go with the weighting."""
        return weighting_objections(self.weighting, plan)

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether Σ_q y_q alone, by shares, is the step of an empty cohort; with `mean` it has no step."""
        return self.weighting != "mean"

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why these clients cannot be clustered so."""
        if self.num_clusters > population.num_clients:
            yield (
                f"ClusterFedVARP needs num_clusters <= the number of clients; got {self.num_clusters} > "
                f"{population.num_clients}. Set aggregation.num_clusters to {population.num_clients} or less."
            )

    def _first_clusters(self, view: View) -> Ids:
        population = view.population
        for text in self.objections_for(population):
            raise ConfigError(text)
        if self.clusters != "labels":
            return balanced_clusters(population.num_clients, self.num_clusters, view.streams)
        if population.label_counts is None:
            raise ConfigError(
                'ClusterFedVARP with clusters = "labels" needs the label counts of every client; this federation has '
                'none. Set aggregation.clusters to "random" or "updates".'
            )
        counts = np.asarray(population.label_counts, dtype=np.float64)
        return nearest_clusters(counts / counts.sum(1, keepdims=True).clip(1), self.num_clusters, view.streams)

    def _learnt(self, kept: Memory, memory: Memory, rows: Rows, view: View) -> Memory:
        """Return the memory with the sketches of this round or, once they are complete, the clusters they make."""
        done = "clusters" in memory and "sketches" not in memory
        if self.clusters != "updates" or done:
            return kept
        clients = view.population.num_clients
        sketches = memory["sketches"].copy() if "sketches" in memory else np.zeros((clients, SKETCH))
        heard = memory["heard"].copy() if "heard" in memory else np.zeros(clients, dtype=bool)
        sketches[rows.facts.clients], heard[rows.facts.clients] = sketched(rows.delta, view.streams), True
        if view.round < self.warm_up:
            return kept | {"sketches": sketches, "heard": heard}
        clusters = kept["clusters"].copy()
        clusters[heard] = nearest_clusters(sketches[heard], self.num_clusters, view.streams)
        return {"clusters": clusters}
