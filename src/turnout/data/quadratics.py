"""Quadratics: one quadratic objective per client, with the optimum and FedAvg's fixed point in closed form.

Intuition: the smallest problem with different clients, so the bias of an algorithm is a distance to a known point.

    F_i(x) = ½ h_i‖x‖² − e_iᵀx              x* = Σ p_i e_i / Σ p_i h_i
    FedAvg with full gradients, τ_i steps with learning rate η, and all clients in every round:
    x_∞ = Σ w_i (e_i/h_i) / Σ w_i,          w_i = p_i (1 − (1 − ηh_i)^τ_i)

A client's targets are copies of (h_i, e_i), and its inputs are zeros. The model is `turnout.models.Point` with dtype
float64, and the loss is `turnout.losses.quadratic`.

Reduces to: x_∞ = x* when every τ_i is 1.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481 (section 3).
"""

from dataclasses import fields, replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from turnout.array_types import Floats
from turnout.data.federation import Federation, Held, Samples, checked
from turnout.errors import ConfigError
from turnout.limits import check_memory
from turnout.settings import Clients, Count, Number, Positive, Width, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

PYTHON_FLOAT = 48  # bytes of a Python float and its reference in a list


@rule("data")
class Quadratics:
    """Quadratic objectives, written out or drawn: h_i ~ U(0.5, 2) and e_i ~ N(0, 1)."""

    # curvature h_i of each client, above 0; none draws them from [0.5, 2]
    curvatures: tuple[Positive, ...] | None = None
    # linear term e_i of each client, any numbers; none draws standard normal numbers
    targets: tuple[tuple[Number, ...], ...] | None = None
    # number of samples n_i of each client, 1 or more; none is one each, so that all clients have the same weight
    num_examples: tuple[Count, ...] | None = None
    clients: Clients = 10  # number of clients N if curvatures and targets are drawn, 1 or more; 10 is usual
    dim: Width = 2  # dimension d of the model if curvatures and targets are drawn, 1 or more; 2 is usual

    def __post_init__(self) -> None:
        if (self.curvatures is None) != (self.targets is None):
            raise ConfigError(
                "Quadratics needs curvatures and targets together; got only one of them. "
                "Set both, or leave both out to draw them."
            )
        if self.curvatures is not None and self.targets is not None:
            _check_lengths(self.curvatures, self.targets)
            _check_sizes(self, self.targets)
        if self.num_examples is not None and len(self.num_examples) != self.num_clients:
            raise ConfigError(
                f"Quadratics needs num_examples for each of {self.num_clients} clients; got {self.num_examples}. "
                "Change data.num_examples.",
                setting="data.num_examples",
            )

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return self.clients if self.curvatures is None else len(self.curvatures)

    @property
    def sample_form(self) -> SampleForm:
        """The form of a sample; a model has as many outputs as a curvature and a target have numbers."""
        outputs = 1 + (self.dim if self.targets is None else len(self.targets[0]))
        return SampleForm(shape=(1,), outputs=outputs, has_classes=False)

    @property
    def weights(self) -> Floats:
        """Weight p_i = n_i / Σ_j n_j of each client in the objective."""
        sizes = np.ones(self.num_clients) if self.num_examples is None else np.array(self.num_examples, dtype=float)
        weights: Floats = sizes / sizes.sum()
        return weights

    def drawn(self, streams: Streams) -> "Quadratics":
        """Return the same problem with all curvatures and linear terms as values."""
        if self.curvatures is not None:
            return self
        numbers = self.clients * (self.dim + 1)
        check_memory(PYTHON_FLOAT * numbers, f"Quadratics with {numbers:,} numbers", "Lower data.clients or data.dim.")
        rng = streams.generator("quadratics")
        curvatures = rng.uniform(0.5, 2.0, self.clients)
        targets = rng.standard_normal((self.clients, self.dim))
        return replace(self, curvatures=tuple(curvatures.tolist()), targets=tuple(map(tuple, targets.tolist())))

    def optimum(self, weights: ArrayLike | None = None) -> Floats:
        """Return x*, the minimiser of Σ_i p_i F_i; weights=None means p_i = n_i / n."""
        curvatures, targets = self._coefficients()
        p = self.weights if weights is None else np.asarray(weights, dtype=float)
        minimiser: Floats = (p @ targets) / (p @ curvatures)
        return minimiser

    def fedavg_fixed_point(self, weights: ArrayLike | None, lr: float, steps: ArrayLike) -> Floats:
        """Return x_∞, the fixed point of FedAvg with full gradients and all clients in every round."""
        curvatures, targets = self._coefficients()
        p = self.weights if weights is None else np.asarray(weights, dtype=float)
        weight = p * (1.0 - (1.0 - lr * curvatures) ** np.asarray(steps))  # w_i
        fixed_point: Floats = (weight / curvatures) @ targets / weight.sum()
        return fixed_point

    def build(self, streams: Streams) -> Federation:
        """Return the federation; the test set is all samples, so its mean loss is the objective.

        A client's hold-out is what it trains on, so its loss there is F_i.
        """
        curvatures, targets = self.drawn(streams)._coefficients()
        numbers = sum(self.num_examples or ()) * (targets.shape[1] + 1)
        check_memory(8 * numbers, f"Quadratics with {numbers:,} numbers", "Lower data.num_examples.")
        sizes = np.ones(len(curvatures), dtype=np.int64) if self.num_examples is None else np.array(self.num_examples)
        y = torch.from_numpy(np.repeat(np.column_stack([curvatures, targets]), sizes, axis=0))
        x = torch.zeros(len(y), 1, dtype=torch.float64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return checked(
            Federation(
                train=Held(x, y, offsets),
                holdout=Held(x, y, offsets),
                test=Samples(x, y),
                name="quadratics",
                example_shape=(1,),
                example=x[:1].clone(),
            )
        )

    def _coefficients(self) -> tuple[Floats, Floats]:
        if self.curvatures is None or self.targets is None:
            raise ConfigError(
                "Quadratics has no closed form before curvatures and targets are drawn. Call drawn(streams) first, or "
                "set curvatures and targets."
            )
        return np.array(self.curvatures, dtype=float), np.array(self.targets, dtype=float)


def _check_sizes(rule: Quadratics, targets: tuple[tuple[float, ...], ...]) -> None:
    defaults = {entry.name: entry.default for entry in fields(rule)}
    for name, given, has in (("clients", rule.clients, len(targets)), ("dim", rule.dim, len(targets[0]))):
        if given not in (defaults[name], has):
            raise ConfigError(
                f"Quadratics has {name} = {has} by its targets; got {name} = {given}. Drop data.{name}, or "
                "data.targets and data.curvatures.",
                setting=f"data.{name}",
            )


def _check_lengths(curvatures: tuple[float, ...], targets: tuple[tuple[float, ...], ...]) -> None:
    if len(curvatures) == 0:
        raise ConfigError(
            "Quadratics needs one curvature or more; got none. Change data.curvatures.", setting="data.curvatures"
        )
    if len(targets) != len(curvatures) or len({len(target) for target in targets}) != 1:
        raise ConfigError(
            f"Quadratics needs one target per curvature, all of one length; got {len(curvatures)} curvatures and "
            f"targets of lengths {[len(target) for target in targets]}. Change data.targets.",
            setting="data.targets",
        )
