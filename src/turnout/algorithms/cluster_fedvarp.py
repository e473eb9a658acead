"""ClusterFedVARP: FedVARP with one remembered update per cluster of clients.

Clients of a cluster share a memory, so that the server stores Q vectors in place of N.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i;  c(i) is the cluster of i
    v ← (1/|S_t|) Σ_{i∈S_t} (Δ_i − y_{c(i)}) + (1/N) Σ_q |C_q| y_q
    x ← x − v
    y_q ← mean of Δ_i over S_t ∩ C_q, where somebody of C_q answered

Choice per axis:
    aggregation  cluster-fedvarp
    server       sgd

Reduces to: FedVARP with one cluster per client; FedAvg with equal weights when there is one cluster.
When to use it: where FedVARP helps, but one vector per client does not fit at the server, or clients come back too
rarely for memories of their own.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Count

EXAMPLE = Example(
    "ClusterFedVARP", settings={"num_clusters": 5, "clusters": "labels"}, scenario={"selection": {"cohort_size": 3}}
)


@algorithm
def cluster_fedvarp(
    *,
    num_clusters: Count = 5,
    clusters: Literal["random", "labels", "updates"] = "random",
    weighting: Literal["mean", "ht", "ht-fleet"] = "mean",
) -> Sections:
    """Return the sections of ClusterFedVARP.

    Args:
        num_clusters: number of clusters Q, 1 to N, usually 5 to 20.
        clusters: how clients are grouped: "random", by "labels" (k-means of label shares), or by "updates".
        weighting: weights of the clients: "mean" all equal, "ht" and "ht-fleet" by data size, divided by the
            probability of taking part; usually "mean".
    """
    clusters_and_weights = {"num_clusters": num_clusters, "clusters": clusters, "weighting": weighting}
    return {"aggregation": {"use": "cluster-fedvarp", **clusters_and_weights}, "server": {"use": "sgd"}}
