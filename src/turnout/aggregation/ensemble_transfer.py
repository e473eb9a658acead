"""Ensemble transfer (Fed-ET): small models of different architectures teach the server a larger one.

Intuition: clients of other architectures have no parameters to average, but their opinions on the same inputs can be
compared. The server listens most to those that are sure, and a little to those that disagree.

    x_a ← x_a − Σ_{i : a_i = a} w_i Δ_i                          each architecture, averaged over its own clients
    s_i(x) = outputs of client i's model x_a − Δ_i on a public input x
    α_i(x) = Var_c(s_i(x)) / Σ_j Var_c(s_j(x))                   how sure client i is
    y(x)   = argmax_c Σ_i α_i(x) s_i(x)                          the consensus
    s_div  = Σ_{i : argmax s_i ≠ y} α_i s_i / Σ_{i : argmax s_i ≠ y} α_i
    server: CE(z(x), y(x)) + λ·KL( softmax(s_div(x)) ‖ softmax(z(x)) ),  without the second term where nobody disagrees

Before this, the server's last layer is set to the mean of the clients'; after it, the last layer of every architecture
is set to the server's. The loss is one cross-entropy with the target onehot(y) + λ·softmax(s_div), whose mass is 1 + λ:
it has the same gradient. No labels and no further bytes: predictions are computed at the server.

Reduces to: FedAvg(mean) on the one architecture when there are no steps and nothing but last layers; with one client,
the labels are its own and the diversity term is off.
Differs from the paper: where no client disagrees there is no diversity term; code for the paper takes s_div = 0 there,
which pulls to the uniform distribution, or divides 0 by 0. One cohort is drawn from all clients, not one of each
architecture; an architecture that nobody in it has keeps its other layers.
Reference: Cho, Manoel, Joshi, Sim, Dimitriadis. IJCAI 2022. arXiv:2204.12703.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.distillation import Distil, Predict, one_hot
from turnout.errors import ConfigError, Problem
from turnout.protocols import Ask, Combined, Memory, Population, View
from turnout.requests import Steps
from turnout.rows import Rows, as_tensor
from turnout.settings import Count, CountOrZero, NonNegative, Positive, ShareBelowOne, rule
from turnout.streams import SERVER
from turnout.submodels import FamilyParts, Parts

Confidence = Literal["logits", "softmax"]


def confidence_weights(outputs: Tensor, votes: Tensor, confidence: Confidence) -> Tensor:
    """Return α_i(x), (clients, samples), which sum to one over clients; where nobody is sure, all count alike."""
    seen = outputs.softmax(2) if confidence == "softmax" else outputs
    variance = votes[:, None] * seen.var(2, correction=0)
    total = variance.sum(0)
    return torch.where(
        total > 0, variance / total.clamp_min(torch.finfo(total.dtype).tiny), votes[:, None] / votes.sum()
    )


def ensemble_targets(outputs: Tensor, weights: Tensor, diversity: float) -> Tensor:
    """Return onehot(y) + λ·softmax(s_div), (samples, classes); the second term is left out where nobody disagrees."""
    labels = (weights[:, :, None] * outputs).sum(0).argmax(1)  # y
    apart = weights * (outputs.argmax(2) != labels)
    total = apart.sum(0)
    shares = apart / torch.where(total > 0, total, torch.ones_like(total))
    opinion = (shares[:, :, None] * outputs).sum(0).softmax(1)  # softmax(s_div)
    return one_hot(labels, outputs) + diversity * opinion * (total > 0)[:, None]


@rule("aggregation")
class EnsembleTransfer:
    """The server's model learns from the models of all architectures on the public set."""

    weighting: Literal["mean", "ratio"] = "mean"  # weights of clients: "mean" counts them alike, "ratio" their samples
    samples: Count | None = None  # number of public samples drawn in each round, 1 or more; none is all of them
    confidence: Confidence = "logits"  # what the variance is taken of: outputs (the paper) or their softmax
    # what all models share: "last-layer", which must have one shape in all of them, or "none"
    representation: Literal["last-layer", "none"] = "last-layer"
    diversity: NonNegative = 0.05  # weight λ of the clients that disagree, 0 or more; 0.05 is usual
    steps: CountOrZero = 128  # number of distillation steps in a round, 0 or more; 128 is usual
    lr: Positive = 5e-3  # learning rate of these steps, above 0; 0.005 is usual
    momentum: ShareBelowOne = 0.9  # momentum of these steps, 0 to below 1; 0.9 is usual
    batch_size: Count = 64  # public samples in each step, 1 or more; 64 is usual

    is_weighted_sum: ClassVar[bool] = False
    trains_server_model: ClassVar[bool] = True

    @property
    def needs_alike_last_layers(self) -> bool:
        """Whether the last layers of all models must have one shape."""
        return self.representation == "last-layer"

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield a public set that is missing or too small."""
        if population.public_size < (self.samples or 1):
            need = "a public set" if self.samples is None else f"a public set of {self.samples} samples or more"
            yield Problem(
                f"EnsembleTransfer needs {need}; this federation has {population.public_size or 'none'}. "
                f"Set data.public_samples to {max(self.samples or 0, 100)} or more.",
                "data.public_samples",
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Return the step to the averaged members and the distilled server."""
        parts = rows.parts
        if parts is None or parts.family is None:
            raise ConfigError(
                'EnsembleTransfer needs clients of a family of models. Set width.use = "architectures".',
                setting="width.use",
            )
        family, whose = parts.family, parts.of(rows.facts.clients)
        shares = np.ones(len(rows.facts)) if self.weighting == "mean" else rows.facts.weights
        weights: Floats = rows.facts.multiplicity * shares
        coefficients = weights / np.bincount(whose, weights, len(family.members))[whose]
        models = view.model - rows.delta
        after = view.model - as_tensor(coefficients, rows.delta) @ rows.delta  # the members
        if self.representation == "last-layer":
            after[family.last_layers[0]] = _mean_last_layer(models, whose, weights, family)
        if self.steps:
            after[family.server.columns] = yield from self._distilled(rows, models, parts, after, view)
        if self.representation == "last-layer":
            for layer in family.last_layers[1:]:
                after[layer] = after[family.last_layers[0]]
        return Combined(direction=view.model - after, coefficients=coefficients, memory=memory)

    def _distilled(self, rows: Rows, models: Tensor, parts: Parts, after: Tensor, view: View) -> Steps[Tensor]:
        """Return the server's model after distillation."""
        assert parts.family is not None
        size, whose = view.population.public_size, parts.of(rows.facts.clients)
        samples = np.arange(size)
        if self.samples is not None:
            samples = np.sort(view.streams.generator("public samples", view.round).choice(size, self.samples, False))
        outputs = yield from _outputs(models, whose, parts.family, samples, view.round)
        votes = as_tensor(rows.facts.multiplicity.astype(float), outputs)
        targets = ensemble_targets(outputs, confidence_weights(outputs, votes, self.confidence), self.diversity)
        request = Distil(
            round=view.round,
            streams=view.streams,
            models=after[parts.family.server.columns][None],
            samples=samples,
            targets=targets[None],
            clients=np.array([SERVER]),
            batch_size=self.batch_size,
            settings={"lr": self.lr, "momentum": self.momentum},
            steps=self.steps,
            cut=parts.family.server.sizes,
        )
        return request.rows((yield request))[0]


def _outputs(models: Tensor, whose: Ids, family: FamilyParts, samples: Ids, round: int) -> Steps[Tensor]:
    """Return the outputs of every client's model; a client whose outputs are not finite has no opinion: zeros."""
    found: dict[int, Tensor] = {}
    for number, member in enumerate(family.members):
        rows = np.flatnonzero(whose == number)
        if len(rows):
            some = models[torch.from_numpy(rows)][:, member.columns]
            request = Predict(round=round, models=some, samples=samples, cut=member.sizes)
            found |= dict(zip(rows.tolist(), request.outputs((yield request)), strict=True))
    outputs = torch.stack([found[row] for row in range(len(whose))])
    return torch.where(torch.isfinite(outputs).all(2, keepdim=True), outputs, torch.zeros_like(outputs))


def _mean_last_layer(models: Tensor, whose: Ids, weights: Floats, family: FamilyParts) -> Tensor:
    """Return the mean of the clients' last layers, over all architectures."""
    layers = torch.stack([row[family.last_layers[number + 1]] for row, number in zip(models, whose, strict=True)])
    return as_tensor(weights / weights.sum(), layers) @ layers
