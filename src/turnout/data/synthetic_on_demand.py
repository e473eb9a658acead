"""SyntheticOnDemand: SYNTHETIC(α, β) whose samples are generated when a client trains, and then discarded.

Intuition: a client's samples are a pure function of its id, so a million clients take the memory of a million sizes.

    z ~ N(0, 1) from the stream keyed by (seed, "synthetic", client);
    u = αz₀,  v = βz₁ + z₂…z₆₁,  W = u + z₆₂…z₆₆₁,  b = u + z₆₆₂…z₆₇₁,  x = v + √Σ·z,  y = argmax softmax(xW + b)

The test set has new samples of a few clients, drawn with probability n_k / n, so its mean loss estimates the objective.
Differs from the paper: sizes are limited to max_samples, since the largest of a million log-normal sizes is about a
million. There are no hold-outs. The draws are float32 and differ from those of Synthetic.
Reference: Li et al. FedProx. MLSys 2020. arXiv:1812.06127.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.federation import Federation, Samples, Slab, checked
from turnout.data.synthetic import CLASSES, DIM, MEAN_SIZE, VARIANCES, check_room
from turnout.limits import check_memory
from turnout.settings import Clients, Count, NonNegative, When, rule
from turnout.streams import Streams, words
from turnout.traits import SampleForm

Singles = NDArray[np.float32]
SPREAD: Singles = np.sqrt(VARIANCES).astype(np.float32)
HEAD = 2 + DIM + DIM * CLASSES + CLASSES  # number of draws for a client's distribution


class ClientDistribution(NamedTuple):
    """Parameters of a client's distribution of inputs and labels."""

    mean: Singles  # v_k
    weight: Singles  # W_k
    bias: Singles  # b_k


def draw_distribution(rng: np.random.Generator, alpha: float, beta: float) -> ClientDistribution:
    """Return a client's distribution, from the first draws of its stream."""
    z = rng.standard_normal(HEAD, dtype=np.float32)
    centre = np.float32(alpha) * z[0]  # u_k
    mean = np.float32(beta) * z[1] + z[2 : 2 + DIM]
    weight = centre + z[2 + DIM : 2 + DIM + DIM * CLASSES].reshape(DIM, CLASSES)
    return ClientDistribution(mean, weight, centre + z[-CLASSES:])


def fill(x: Singles, y: Ids, rng: np.random.Generator, distribution: ClientDistribution) -> None:
    """Write drawn inputs to x and their labels to y."""
    rng.standard_normal(dtype=np.float32, out=x)
    x *= SPREAD
    x += distribution.mean
    np.argmax(x @ distribution.weight + distribution.bias, axis=1, out=y)


@dataclass(frozen=True, slots=True)
class Generated:
    """Samples that are generated on demand; a client always has the same samples."""

    sizes: Ids  # number of samples n_k of each client
    streams: Streams  # randomness of the run
    alpha: float  # α
    beta: float  # β

    def fetch(self, clients: Ids) -> Slab:
        """Return generated samples of these clients only."""
        sizes = self.sizes[clients]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        x, y = np.empty((total, DIM), dtype=np.float32), np.empty(total, dtype=np.int64)
        for key, end, size in zip(words(self.streams.keys("synthetic", clients=clients), 2), ends, sizes, strict=True):
            rng = np.random.Generator(np.random.Philox(key=key))
            fill(x[end - size : end], y[end - size : end], rng, draw_distribution(rng, self.alpha, self.beta))
        return Slab(torch.from_numpy(x), torch.from_numpy(y), ends - sizes, sizes, None)

    def fresh(self, clients: Ids, each: int) -> Samples:
        """Return test samples of these clients, which they do not train on."""
        x = np.empty((len(clients), each, DIM), dtype=np.float32)
        y = np.empty((len(clients), each), dtype=np.int64)
        for place, client in enumerate(clients):
            distribution = draw_distribution(
                self.streams.generator("synthetic", client=int(client)), self.alpha, self.beta
            )
            fill(x[place], y[place], self.streams.generator("synthetic-test", client=int(client)), distribution)
        return Samples(torch.from_numpy(x.reshape(-1, DIM)), torch.from_numpy(y.reshape(-1)))


@rule("data")
class SyntheticOnDemand:
    """SYNTHETIC(α, β) for up to millions of clients: 60 inputs, 10 classes."""

    clients: Clients = 1_000_000  # number of clients N, 1 or more; a million is usual
    alpha: NonNegative = 1.0  # standard deviation α of the clients' model means u_k, 0 or more; 0, 0.5 or 1 is usual
    beta: NonNegative = 1.0  # standard deviation β of the clients' input means B_k, 0 or more; 0, 0.5 or 1 is usual
    # number of samples n_k of every client, 1 or more; none draws log-normal sizes (usual)
    samples: Count | None = None
    # upper limit of the log-normal sizes, 1 or more; 10,000 is usual
    max_samples: Annotated[Count, When(samples=None)] = 10_000
    test_clients: Clients = 100  # number of clients that the test set is drawn from, 1 or more; 100 is usual
    test_samples: Count = 20  # number of test samples of each of these clients, 1 or more; 20 is usual

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(DIM,), outputs=CLASSES)

    def build(self, streams: Streams) -> Federation:
        """Return the federation; only the sizes and the test set are computed now."""
        check_memory(32 * self.clients, f"SyntheticOnDemand with {self.clients:,} clients", "Lower data.clients.")
        check_room("SyntheticOnDemand", 1, MEAN_SIZE if self.samples is None else self.samples)
        check_room("SyntheticOnDemand's test set", min(self.test_clients, self.clients), self.test_samples)
        if self.samples is not None:
            sizes = np.full(self.clients, self.samples, dtype=np.int64)
        else:
            drawn = streams.generator("synthetic-sizes").lognormal(4, 2, self.clients)
            sizes = np.minimum(drawn + 50, self.max_samples).astype(np.int64)
        shares = Generated(sizes, streams, self.alpha, self.beta)
        count = min(self.test_clients, self.clients)
        rng = streams.generator("synthetic-test")
        tested = np.sort(rng.choice(self.clients, count, replace=False, p=sizes / sizes.sum()))
        return checked(
            Federation(
                train=shares,
                test=shares.fresh(tested, self.test_samples),
                name=f"synthetic-on-demand({self.alpha:g}, {self.beta:g})",
                num_classes=CLASSES,
                example_shape=(DIM,),
                example=torch.zeros(1, DIM),
            )
        )
