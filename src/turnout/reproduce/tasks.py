"""Data sets of single papers; a study file names them by their address."""

from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from turnout.data.assemble import assemble
from turnout.data.federation import Federation, Samples
from turnout.data.partition.pareto import pareto_sizes
from turnout.data.quadratics import Quadratics
from turnout.data.synthetic import federated, legacy_generator, synthetic_clients
from turnout.data.synthetic_iid import iid_clients
from turnout.errors import ConfigError
from turnout.settings import (
    Clients,
    Count,
    CountOrZero,
    NonNegative,
    Number,
    Positive,
    Range,
    ShareBelowOne,
    When,
    Width,
    rule,
)
from turnout.streams import Streams

MOST_COPIES = 50  # samples of the client with the largest weight; weights are rounded to samples


def above_minimum(output: Tensor, target: Tensor) -> Tensor:
    """Return ½ h‖x − e/h‖² for each sample: the parabola of turnout.losses.quadratic, with its minimum at zero."""
    curvature, linear = target[:, :1], target[:, 1:]
    return 0.5 * (curvature * (output - linear / curvature).square()).sum(1)


@rule("data")
class RandomQuadratics:
    """Random parabolas, different for every seed: h_i ~ U(h), e_i ~ U(e) in each coordinate, p_i ∝ U(0, 1)^(1/a).

    Power-of-choice draws h from (1, 20), e from (0, 100) in five dimensions and p with a = 3, numpy's power(3).
    """

    clients: Clients = 10  # number of clients N, 1 or more
    dim: Width = 2  # number of coordinates, 1 or more
    # range of the curvature h, above 0; equal bounds give every client the same
    curvature: tuple[Positive, Positive] = (0.5, 2.0)
    target: tuple[Number, Number] = (-1.0, 1.0)  # range of the linear term e
    weight_power: Number | None = None  # exponent a of the weights; none gives every client the same weight

    def __post_init__(self) -> None:
        if self.curvature[0] > self.curvature[1] or self.target[0] > self.target[1]:
            raise ConfigError(
                f"RandomQuadratics needs curvature[0] <= curvature[1] and target[0] <= target[1]; got "
                f"{self.curvature} and {self.target}. Change data.curvature or data.target.",
                setting="data.curvature",
            )

    def quadratics(self, streams: Streams) -> Quadratics:
        """Return the parabolas of a seed, with their closed-form minimum."""
        rng = streams.generator("quadratics")
        curvatures = rng.uniform(*self.curvature, self.clients)
        targets = rng.uniform(*self.target, (self.clients, self.dim))
        copies = None
        if self.weight_power is not None:
            shares = rng.power(self.weight_power, self.clients)
            copies = tuple(np.maximum(np.rint(MOST_COPIES * shares), 1).astype(int).tolist())
        return Quadratics(
            curvatures=tuple(curvatures.tolist()), targets=tuple(map(tuple, targets.tolist())), num_examples=copies
        )

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        return self.quadratics(streams).build(streams)


@rule("data")
class ParetoSynthetic:
    """SYNTHETIC(α, β) with Type-I Pareto sizes, as in Ruan et al.: 60 inputs, 10 classes."""

    alpha: Annotated[NonNegative, When(iid=False)] = 1.0  # spread α of the clients' models, 0 or more
    beta: Annotated[NonNegative, When(iid=False)] = 1.0  # spread β of the clients' inputs, 0 or more
    iid: bool = False  # whether all clients share one model and one input distribution
    clients: Clients = 50
    samples: Annotated[int, Range(least=10, ceiling=1e9)] = (
        100  # mean number of samples per client, with the hold-out, 10 or more
    )
    index: Positive = 0.5  # Pareto index, above 0; small values give very unequal sizes
    cap: Annotated[float, Range(least=1)] = 20.0  # largest size as a multiple of the median, 1 or more
    holdout: ShareBelowOne = 0.1  # fraction of each client's samples in its own test set, 0 to below 1

    def build(self, streams: Streams) -> Federation:
        """Return the federation; its test set is the union of the hold-outs."""
        sizes = pareto_sizes(
            self.clients,
            self.clients * self.samples,
            streams.generator("pareto-sizes"),
            index=self.index,
            cap=self.cap,
        )
        rng = legacy_generator(None, streams)
        clients = iid_clients(rng, sizes) if self.iid else synthetic_clients(rng, sizes, self.alpha, self.beta)
        kind = "iid" if self.iid else f"{self.alpha:g}, {self.beta:g}"
        return federated(f"pareto-synthetic({kind})", clients, sizes, self.holdout, streams)


@rule("data")
class Regions:
    """Each client has its own block of coordinates, with labels from a half-space of its own.

    x has `dim` coordinates per client; client i's inputs are N(0, 1) in its block and zero elsewhere, and y = 1 where
    w_iᵀx > 0 with w_i ~ N(0, I). One linear model fits all blocks, and no block has information about another.
    """

    clients: Clients = 10
    dim: Width = 4  # coordinates of a block, 1 or more
    samples: Count = 100  # training samples per client, 1 or more
    test_samples: Count = 200  # test samples per client, 1 or more
    server_samples: CountOrZero = 0  # samples moved from the clients to the server, 0 or more

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        pairs = [self._client(client, streams) for client in range(self.clients)]
        train = _joined([samples for samples, _ in pairs])
        parts = np.split(np.arange(self.clients * self.samples), self.clients)
        return assemble(
            name="regions",
            store=train,
            parts=parts,
            streams=streams,
            test=_joined([test for _, test in pairs]),
            server_samples=self.server_samples,
            num_classes=2,
        )

    def _client(self, client: int, streams: Streams) -> tuple[Samples, Samples]:
        rng = streams.generator("regions", client=client)
        weight = rng.standard_normal(self.dim)
        block = rng.standard_normal((self.samples + self.test_samples, self.dim))
        x = np.zeros((len(block), self.clients * self.dim), dtype=np.float32)
        x[:, client * self.dim : (client + 1) * self.dim] = block
        y = torch.from_numpy((block @ weight > 0).astype(np.int64))
        both = torch.from_numpy(x)
        return Samples(both[: self.samples], y[: self.samples]), Samples(both[self.samples :], y[self.samples :])


def _joined(parts: list[Samples]) -> Samples:
    return Samples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
