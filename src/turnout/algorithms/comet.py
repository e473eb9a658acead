"""COMET: clients keep models of their own and exchange predictions on public inputs, in clusters of alike clients.

No model is sent. A client follows the mean prediction of the clients whose predictions resemble its own, then trains on
its own samples.

Round:
    S_t ← K clients of those available;  P_t ← public inputs of the round
    for each client i in S_t, in parallel:
        sends p_i(x), the softmax of its own model v_i, for x in P_t
    the server clusters the clients by their predictions and sends each the mean t_i(x) of its cluster
    for each client i in S_t, in parallel:
        v_i ← v_i after some steps on λ KL( t_i(x) ‖ p_i(x) ), then trains on its own samples

Choice per axis:
    personal     codistil with clusters = Q and strength = λ

Reduces to: every client alone when λ = 0; the mean prediction of all when Q = 1.
When to use it: when clients' tasks differ and a model is too large to send. Bytes count predictions alone. With a
family of models and width.use = "architectures", clients have models of different architectures.
Reference: Cho, Wang, Chirvolu, Joshi. 2021. arXiv:2109.08119.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example("COMET", scenario={"data": {"holdout": 0.25, "public_samples": 100}})


@algorithm
def comet(
    *,
    clusters: Count = 2,
    strength: NonNegative = 1.0,
    samples: Count | None = None,
    distil_steps: Count = 10,
    distil_lr: Positive | None = None,
    cluster: Literal["clients", "samples"] = "clients",
    loss: Literal["kl", "l2"] = "kl",
) -> Sections:
    """Return the sections of COMET.

    Args:
        clusters: number Q of clusters of clients, 1 or more, usually 2 to 5.
        strength: strength λ of the pull towards the cluster's predictions, 0 or more; 0 is training alone.
        samples: public inputs drawn in each round, 1 or more; left out, all of them.
        distil_steps: number of steps towards the cluster's predictions in a round, 1 or more.
        distil_lr: learning rate of these steps, above 0; left out, the clients' own.
        cluster: what is clustered: "clients" by all their predictions of a round, or their predictions on each public
            input apart, "samples", as in the paper; every centroid of every input is then sent to every client.
        loss: distance between predictions: "kl", Kullback-Leibler divergence, or "l2", squared difference.
    """
    return {
        "personal": {
            "use": "codistil",
            "clusters": clusters,
            "strength": strength,
            "distil_steps": distil_steps,
            "cluster": cluster,
            "loss": loss,
            **given(samples=samples, lr=distil_lr),
        },
    }
