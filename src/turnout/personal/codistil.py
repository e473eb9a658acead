"""Codistil (COMET): clients keep models of their own and learn from clients that predict alike; no model is sent.

Intuition: what clients know can be exchanged as predictions on inputs that all of them have. A client follows the mean
of those whose predictions resemble its own, so that it learns from others without becoming the average of all.

    p_i(x) = softmax of client i's own model v_i on the round's public inputs x ∈ P_t
    c(i)   = cluster of client i: k-means with Q clusters over the vectors (p_i(x))_{x ∈ P_t}
    t_i(x) = mean of p_j(x) over the clients j with c(j) = c(i)                  "samples": the centroid nearest to
             p_i(x) of k-means over the p_j(x), for each x by itself
    v_i  ← v_i after `distil_steps` steps of SGD on  λ · KL( t_i(x) ‖ p_i(x) )        "l2": λ · ‖p_i(x) − t_i(x)‖²
    v_i  ← v_i after the local steps on the client's own samples, as `local` says;  v_i = x⁰ at first

The published order is distil, train, predict for the next round: the same where everyone takes part in every round.
A client sends and receives |P_t| · classes numbers and nothing else; nothing at all where λ = 0. With "samples" it
receives all Q centroids of each input, min(Q, |S_t|) times as many, and chooses. There is no shared model: x stays as
it was. With a family of models v_i is the model of the client's architecture, and all clients are clustered together:
predictions have one shape whatever the model.

Reduces to: every client alone when λ = 0; everybody towards the mean prediction when Q = 1; with Q = the cohort's size
every client has its own predictions as its target, and the gradient is zero at the start.
Differs from the paper: cluster = "clients" assigns clusters once for all inputs of a round; k-means starts by k-means++
with a key of its own and ends after 20 iterations.
Reference: Cho, Wang, Chirvolu, Joshi (COMET). 2021. arXiv:2109.08119.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.distillation import Distil, Distilled, Predict
from turnout.errors import Problem
from turnout.learned import Learned
from turnout.models.layout import Layout
from turnout.personal.at_clients import AtClients
from turnout.protocols import Population
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import TableExcerpt
from turnout.settings import Count, NonNegative, Positive, rule

ITERATIONS = 20  # of k-means


def clusters_of(points: Floats, count: int, rng: np.random.Generator) -> Ids:
    """Return the cluster of each point by k-means; ties go to the smallest index. With enough, each has its own."""
    if count >= len(points):
        return np.arange(len(points))
    return np.asarray(_square_distances(points, centroids_of(points, count, rng)).argmin(1))


def nearest_centroids(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return for each point the nearest centroid of k-means."""
    if count >= len(points):
        return points
    centroids = centroids_of(points, count, rng)
    return np.asarray(centroids[_square_distances(points, centroids).argmin(1)])


def centroids_of(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return the centroids of k-means for fewer clusters than points."""
    centres = points[[int(rng.integers(len(points)))]]
    while len(centres) < count:  # k-means++: far points are likely
        nearest = _square_distances(points, centres).min(1)
        total = nearest.sum()
        shares = nearest / total if total > 0 else np.full(len(points), 1 / len(points))
        centres = np.concatenate([centres, points[[int(rng.choice(len(points), p=shares))]]])
    for _ in range(ITERATIONS):
        labels = _square_distances(points, centres).argmin(1)
        means = [points[labels == at].mean(0) if (labels == at).any() else centres[at] for at in range(count)]
        if np.array_equal(np.stack(means), centres):
            break
        centres = np.stack(means)
    return np.asarray(centres)


def cluster_means(predictions: Tensor, clusters: Ids) -> Tensor:
    """Return for each client the mean prediction of its cluster."""
    targets = torch.empty_like(predictions)
    for number in np.unique(clusters):
        members = torch.from_numpy(np.flatnonzero(clusters == number))
        targets[members] = predictions[members].mean(0)
    return targets


def _square_distances(points: Floats, centres: Floats) -> Floats:
    return np.stack([np.square(points - centre).sum(1) for centre in centres], axis=1)


@rule("personal")
class Codistil:
    """A model of its own for every client, and predictions in place of a shared model."""

    clusters: Count = 2  # number Q of clusters of clients, 1 or more; 1 is the mean of all, 2 to 5 is usual
    strength: NonNegative = 1.0  # strength λ of the pull towards the cluster's predictions, 0 or more; 0 is alone
    samples: Count | None = None  # number of public inputs drawn in each round, 1 or more; none is all of them
    distil_steps: Count = 10  # number of steps towards the cluster's predictions in a round, 1 or more
    lr: Positive | None = None  # learning rate of these steps, above 0; none is the largest local learning rate
    batch_size: Count = 64  # public inputs in each of these steps, 1 or more; 64 is usual
    # what is clustered: "clients" by all their predictions of a round, or their predictions on each public input apart,
    # "samples", as in the paper
    cluster: Literal["clients", "samples"] = "clients"
    loss: Literal["kl", "l2"] = "kl"  # distance between predictions: Kullback-Leibler divergence or squared difference

    has_shared_model: ClassVar[bool] = False
    trains_members: ClassVar[bool] = True

    def kept_names(self, layout: Layout) -> tuple[str, ...]:
        """Return all names: no parameter is sent."""
        return tuple(slot.name for slot in layout.slots)

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield a public set that is missing or too small, and clients that cannot be measured."""
        if population.public_size < (self.samples or 1):
            need = "a public set" if self.samples is None else f"a public set of {self.samples} samples or more"
            yield Problem(
                f"Codistil needs {need}; this federation has {population.public_size or 'none'}. "
                f"Set data.public_samples to {max(self.samples or 0, 100)} or more.",
                "data.public_samples",
            )
        if population.holdout_sizes is not None and not population.holdout_sizes.any():
            yield Problem(
                "Codistil has no shared model to measure on a test set, only clients' own, each on its hold-out; this "
                "federation has no hold-outs. Set data.holdout to 0.2, for example.",
                "data.holdout",
            )

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Compare predictions, distil, and train on the client's own samples."""
        own, told = here.rows().take(here.clients), {}
        if self.strength > 0:
            samples = self._samples(here)
            request = Predict(round=here.round, models=own, samples=samples, clients=here.clients)
            predictions = request.outputs((yield request)).softmax(2)
            distil = self._distil(here, own, samples, self._targets(here, samples, predictions))
            answer: Distilled = yield distil
            own = distil.rows(answer)
            size = predictions.numel() * predictions.element_size()
            told = {
                "gradients": answer.gradients,
                "predictions": len(here.clients) * len(samples),
                "bytes_up": size,
                "bytes_down": size if self.cluster == "clients" else size * min(self.clusters, len(here.clients)),
            }
        starts = TableExcerpt(here.clients, own)
        sent: Trained = yield replace(fit, starts=starts, own_models=True, private=here.names, wants_ends=here.names)
        assert sent.ends is not None
        return Learned(sent=sent, rows={"model": sent.ends}, **told)

    def models(self, here: AtClients) -> Mapping[str, Tensor]:
        """Return each client's own model."""
        return {"personal": here.rows().take(here.clients)}

    def _samples(self, here: AtClients) -> Ids:
        """Return the public inputs of the round."""
        if self.samples is None:
            return np.arange(here.public_size)
        drawn = here.streams.generator("public samples", here.round).choice(here.public_size, self.samples, False)
        return np.sort(drawn)

    def _targets(self, here: AtClients, samples: Ids, predictions: Tensor) -> Tensor:
        """Return what each client follows; one whose predictions are not finite is left alone."""
        points = predictions.double().flatten(1).cpu().numpy()
        sound = np.isfinite(points).all(1)
        if self.cluster == "samples":
            each = predictions.double().cpu().numpy()
            for at, sample in enumerate(samples.tolist()):
                rng = here.streams.generator("clusters", here.round, sample)
                each[sound, at] = nearest_centroids(each[sound, at], self.clusters, rng)
            return torch.from_numpy(each).to(predictions)
        clusters = np.arange(len(points)) + self.clusters  # of its own, for a client that cannot be compared
        clusters[sound] = clusters_of(points[sound], self.clusters, here.streams.generator("clusters", here.round))
        return cluster_means(predictions, clusters)

    def _distil(self, here: AtClients, own: Tensor, samples: Ids, targets: Tensor) -> Distil:
        return Distil(
            round=here.round,
            streams=here.streams,
            models=own,
            samples=samples,
            targets=targets,
            clients=here.clients,
            batch_size=self.batch_size,
            settings={"lr": float(here.settings["lr"].max()) if self.lr is None else self.lr},
            steps=self.distil_steps,
            loss="cross-entropy" if self.loss == "kl" else "squares",
            strength=self.strength,
        )
