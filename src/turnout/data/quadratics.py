"""Quadratics: one parabola per client, with everything known in closed form.

Intuition: the smallest problem on which clients disagree, so any bias of a rule shows as a distance to a known point.

    F_i(x) = ½ h_i‖x‖² − e_iᵀx              x* = Σ p_i e_i / Σ p_i h_i
    FedAvg, full gradients, τ_i steps of size η, everyone present:
    x_∞ = Σ w_i (e_i/h_i) / Σ w_i,          w_i = p_i (1 − (1 − ηh_i)^τ_i)

A client's samples are copies of (h_i, e_i), as targets; inputs are zeros. The model is `point_model(dim)`, the loss
`turnout.losses.quadratic`; all in float64.

Reduces to: x_∞ = x* when every τ_i is 1.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481 (section 3).
"""

from dataclasses import fields, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from turnout.array_types import Floats
from turnout.data.federation import Federation, Held, Samples, checked
from turnout.errors import ConfigError
from turnout.limits import check_memory
from turnout.settings import Clients, Count, Number, Positive, Width, rule
from turnout.streams import Streams

PYTHON_FLOAT = 48  # bytes of a number and its place in a list, where parabolas are written out


class Point(nn.Module):
    """A model that is only a point: it returns itself for every sample."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(dim, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the point, once per sample."""
        return self.point.expand(x.shape[0], -1)


def point_model(dim: int) -> Point:
    """Return the model that goes with Quadratics of this dimension; it starts at zero."""
    return Point(dim)


@rule("data")
class Quadratics:
    """Parabolas, given or drawn: h_i ~ U(0.5, 2) and e_i ~ N(0, 1)."""

    curvatures: tuple[Positive, ...] | None = None  # h_i
    targets: tuple[tuple[Number, ...], ...] | None = None  # e_i
    num_examples: tuple[Count, ...] | None = None  # n_i; left out, one each
    clients: Clients = 10  # used when curvatures and targets are left out
    dim: Width = 2  # likewise

    def __post_init__(self) -> None:
        if (self.curvatures is None) != (self.targets is None):
            raise ConfigError(
                "Quadratics needs curvatures and targets together; got only one of them. "
                "Give both, or neither to have them drawn."
            )
        if self.curvatures is not None and self.targets is not None:
            _check_given(self.curvatures, self.targets)
            _check_sizes(self, self.targets)
        if self.num_examples is not None and len(self.num_examples) != self.num_clients:
            raise ConfigError(
                f"Quadratics needs num_examples for each of {self.num_clients} clients; got {self.num_examples}. "
                "Change data.num_examples."
            )

    @property
    def num_clients(self) -> int:
        """N."""
        return self.clients if self.curvatures is None else len(self.curvatures)

    @property
    def weights(self) -> Floats:
        """p_i = n_i / Σ n_j."""
        sizes = np.ones(self.num_clients) if self.num_examples is None else np.array(self.num_examples, dtype=float)
        weights: Floats = sizes / sizes.sum()
        return weights

    def drawn(self, streams: Streams) -> "Quadratics":
        """Return the same problem with its parabolas written out."""
        if self.curvatures is not None:
            return self
        numbers = self.clients * (self.dim + 1)
        check_memory(PYTHON_FLOAT * numbers, f"Quadratics with {numbers:,} numbers", "Lower data.clients or data.dim.")
        rng = streams.generator("quadratics")
        curvatures = rng.uniform(0.5, 2.0, self.clients)
        targets = rng.standard_normal((self.clients, self.dim))
        return replace(self, curvatures=tuple(curvatures.tolist()), targets=tuple(map(tuple, targets.tolist())))

    def optimum(self, weights: ArrayLike | None = None) -> Floats:
        """Return x*, the minimiser of Σ p_i F_i; the weights are n_i / n unless given."""
        curvatures, targets = self._given()
        p = self.weights if weights is None else np.asarray(weights, dtype=float)
        minimiser: Floats = (p @ targets) / (p @ curvatures)
        return minimiser

    def fedavg_fixed_point(self, weights: ArrayLike | None, lr: float, steps: ArrayLike) -> Floats:
        """Return x_∞, where FedAvg with full gradients and everyone present stops moving."""
        curvatures, targets = self._given()
        p = self.weights if weights is None else np.asarray(weights, dtype=float)
        pull = p * (1.0 - (1.0 - lr * curvatures) ** np.asarray(steps))  # w_i
        fixed_point: Floats = (pull / curvatures) @ targets / pull.sum()
        return fixed_point

    def build(self, streams: Streams) -> Federation:
        """Return the federation; the test set is all samples, so its mean loss is the objective."""
        curvatures, targets = self.drawn(streams)._given()
        numbers = sum(self.num_examples or ()) * (targets.shape[1] + 1)
        check_memory(8 * numbers, f"Quadratics with {numbers:,} numbers", "Lower data.num_examples.")
        sizes = np.ones(len(curvatures), dtype=np.int64) if self.num_examples is None else np.array(self.num_examples)
        y = torch.from_numpy(np.repeat(np.column_stack([curvatures, targets]), sizes, axis=0))
        x = torch.zeros(len(y), 1, dtype=torch.float64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return checked(
            Federation(
                train=Held(x, y, offsets),
                test=Samples(x, y),
                name="quadratics",
                example_shape=(1,),
                example=x[:1].clone(),
            )
        )

    def _given(self) -> tuple[Floats, Floats]:
        if self.curvatures is None or self.targets is None:
            raise ConfigError(
                "Quadratics has no closed form before its parabolas are drawn. Call drawn(streams) first, or give "
                "curvatures and targets."
            )
        return np.array(self.curvatures, dtype=float), np.array(self.targets, dtype=float)


def _check_sizes(rule: Quadratics, targets: tuple[tuple[float, ...], ...]) -> None:
    defaults = {entry.name: entry.default for entry in fields(rule)}
    for name, given, has in (("clients", rule.clients, len(targets)), ("dim", rule.dim, len(targets[0]))):
        if given not in (defaults[name], has):
            raise ConfigError(
                f"Quadratics has {name} = {has} by its targets; got {name} = {given}. Drop data.{name}, or "
                "data.targets and data.curvatures."
            )


def _check_given(curvatures: tuple[float, ...], targets: tuple[tuple[float, ...], ...]) -> None:
    if len(curvatures) == 0:
        raise ConfigError("Quadratics needs one curvature or more; got none. Change data.curvatures.")
    if len(targets) != len(curvatures) or len({len(target) for target in targets}) != 1:
        raise ConfigError(
            f"Quadratics needs one target per curvature, all of one length; got {len(curvatures)} curvatures and "
            f"targets of lengths {[len(target) for target in targets]}. Change data.targets."
        )
