"""ClusterFedVARP: FedVARP with one stored update per cluster of clients instead of one per client.

Intuition: similar clients send similar updates, so one stored update can represent a whole cluster.

    v   = (1/|S|) Σ_{i∈S} (Δ_i − y_{c(i)}) + (1/N) Σ_q |C_q| y_q    uses the old y
    y_q ← mean of Δ_i over S ∩ C_q, for every cluster q with an update in this round

    random   C_q are clusters of equal size, drawn at random once per run
    labels   C_q are the k-means clusters of the clients' label distributions
    updates  C_q are random up to round `warm_up`, then the k-means clusters of the directions of the last updates

Under `ht` the first weight is p_i / π_i, under `ht-fleet` it is p_i / (q_i π_i), and |C_q| / N becomes Σ_{j∈C_q} p_j.
If no update is returned, both step along the stored updates alone (see FedVARP). For `updates` the server stores a
sketch of 32 numbers per update. When it computes the clusters, it resets the stored updates to 0. Clients that have not
sent an update stay in their random cluster.

Reduces to: FedVARP with one cluster per client; FedAvg (mean) with one cluster, and under full participation.
Differs from the paper: the paper leaves the clustering open; the weighted form is new.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

import warnings
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.fedavg import participation_weights
from turnout.aggregation.fedvarp import WeightedTable, client_shares, replaced, restore_table, stored_work
from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError, Problem
from turnout.protocols import Ask, Combined, Memory, Population, View
from turnout.rows import Rows, as_tensor
from turnout.settings import Clients, Count, When, rule
from turnout.streams import Streams

SKETCH_SIZE = 32  # numbers stored per update until the clusters are computed


def balanced_clusters(num_clients: int, num_clusters: int, streams: Streams) -> Ids:
    """Return a random cluster per client; cluster sizes differ by at most one."""
    clusters = np.empty(num_clients, dtype=np.int64)
    clusters[streams.generator("clusters").permutation(num_clients)] = np.arange(num_clients) % num_clusters
    return clusters


def k_means_clusters(points: Floats, num_clusters: int, streams: Streams) -> Ids:
    """Return the k-means cluster of each point; the number of threads does not affect the result."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed = int(streams.generator("clusters").integers(2**31))
    means = KMeans(n_clusters=min(num_clusters, len(points)), n_init=4, random_state=seed)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with fewer distinct points than clusters, some clusters stay empty
        return np.asarray(means.fit_predict(points), dtype=np.int64)


def cluster_shares(clusters: Ids, shares: Floats, num_clusters: int) -> Floats:
    """Return the sum of the clients' shares in each cluster; |C_q| / N if all shares are equal."""
    totals = np.zeros(num_clusters)
    np.add.at(totals, clusters, shares)
    return totals


def update_sketches(delta: Tensor, streams: Streams) -> Floats:
    """Return a sketch of each update's direction: signed sums over random groups of coordinates, with norm 1."""
    rng, size = streams.generator("sketch"), delta.shape[1]
    group = torch.from_numpy(rng.integers(SKETCH_SIZE, size=size)).to(delta.device)
    sign = torch.from_numpy(rng.integers(2, size=size) * 2 - 1).to(delta)
    sums = torch.zeros(len(delta), SKETCH_SIZE, dtype=delta.dtype, device=delta.device)
    sums.index_add_(1, group, delta * sign)
    return torch.nn.functional.normalize(sums.double()).cpu().numpy()


@rule("aggregation")
class ClusterFedVARP:
    """Variance reduction at the server, with one stored update per cluster."""

    is_weighted_sum: ClassVar[bool] = False  # the direction also contains the stored updates
    needs_one_model: ClassVar[bool] = True
    # number of clusters Q, from 1 to the number of clients; the memory is one update per cluster
    num_clusters: Clients
    # how clients are clustered: "random" at random, "labels" by label distribution, "updates" by the direction of their
    # last update
    clusters: Literal["random", "labels", "updates"] = "random"
    # round after which clusters = "updates" computes the clusters, 1 or more; late enough that most clients have
    # been selected
    warm_up: Annotated[Count, When(clusters="updates")] = 10
    # how client weights correct for client sampling: "mean" gives every client the same weight; "ht" divides p_i by
    # the inclusion probability π_i; "ht-fleet" divides p_i by q_i π_i, with q_i the probability to be available
    weighting: Literal["mean", "ht", "ht-fleet"] = "mean"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return v, and store the mean update of each cluster in the cohort."""
        facts, delta = rows.facts, rows.delta
        clusters: Ids = memory["clusters"] if "clusters" in memory else self._first_clusters(view)
        by_client = client_shares(view.population, self.weighting != "mean")
        stored = restore_table(memory, view, cluster_shares(clusters, by_client, self.num_clusters))
        weights = participation_weights(facts, self.weighting)
        active, cluster_of_row = np.unique(clusters[facts.clients], return_inverse=True)  # clusters in the cohort
        membership = np.zeros((len(active), len(facts)))
        membership[cluster_of_row, np.arange(len(facts))] = facts.multiplicity
        new = as_tensor(membership / membership.sum(1, keepdims=True), delta) @ delta
        old = stored.table.take(active)
        old_weights = cluster_shares(cluster_of_row, weights, len(active))  # Σ of the weights of −y_q
        direction = as_tensor(weights, delta) @ delta - as_tensor(old_weights, old) @ old + stored.mean.to(delta.dtype)
        mean = stored.mean + as_tensor(stored.shares[active], old) @ (new - old)
        stored.table.put(active, new)
        old_work = stored_work(memory, len(clusters))
        old_shares = replaced(stored.shares, active, stored.shares[active] - old_weights)  # of y_q in v
        new_work = facts.local_lr * facts.local_work * facts.multiplicity / membership.sum(1)[cluster_of_row]
        work = replaced(np.where(np.isin(clusters, active), 0.0, old_work), facts.clients, new_work)
        stored = WeightedTable(stored.table, stored.shares, mean)
        return Combined(
            direction=direction,
            coefficients=weights,
            memory=self._next_memory(stored.memory() | {"clusters": clusters, "work": work}, memory, rows, view),
            metrics={"memory_bytes": float(stored.num_bytes)},
            reused=old_shares[clusters] * old_work,
        )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether a round without updates steps along Σ_q shares_q y_q; with `mean` it takes no step."""
        return self.weighting != "mean"

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the number of clusters does not suit the number of clients."""
        if self.num_clusters > population.num_clients:
            yield Problem(
                f"ClusterFedVARP needs num_clusters <= the number of clients; got {self.num_clusters} > "
                f"{population.num_clients}. Set aggregation.num_clusters to {population.num_clients} or less.",
                "aggregation.num_clusters",
            )

    def _first_clusters(self, view: View) -> Ids:
        population = view.population
        for problem in self.population_problems(population):
            raise ConfigError.of([problem])
        if self.clusters != "labels":
            return balanced_clusters(population.num_clients, self.num_clusters, view.streams)
        if population.label_counts is None:
            raise ConfigError(
                'ClusterFedVARP with clusters = "labels" needs the label counts of every client; this federation has '
                'none. Set aggregation.clusters to "random" or "updates".',
                setting="aggregation.clusters",
            )
        counts = np.asarray(population.label_counts, dtype=np.float64)
        return k_means_clusters(counts / counts.sum(1, keepdims=True).clip(1), self.num_clusters, view.streams)

    def _next_memory(self, stored: Memory, memory: Memory, rows: Rows, view: View) -> Memory:
        """Return the memory with this round's sketches or, in the round `warm_up`, with the new clusters alone."""
        has_final_clusters = "clusters" in memory and "sketches" not in memory
        if self.clusters != "updates" or has_final_clusters:
            return stored
        clients = view.population.num_clients
        sketches = memory["sketches"].copy() if "sketches" in memory else np.zeros((clients, SKETCH_SIZE))
        has_sketch = memory["heard"].copy() if "heard" in memory else np.zeros(clients, dtype=bool)
        sketches[rows.facts.clients], has_sketch[rows.facts.clients] = update_sketches(rows.delta, view.streams), True
        if view.round < self.warm_up:
            return stored | {"sketches": sketches, "heard": has_sketch}
        clusters = stored["clusters"].copy()
        clusters[has_sketch] = k_means_clusters(sketches[has_sketch], self.num_clusters, view.streams)
        return {"clusters": clusters}
