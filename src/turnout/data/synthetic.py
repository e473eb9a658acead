"""Synthetic: the SYNTHETIC(α, β) data of FedProx, labelled by a different linear model at every client.

Intuition: clients have different labelling models W_k and different input means v_k; a larger β spreads the means more.

    n_k = ⌊LogNormal(4, 2)⌋ + 50          u_k ~ N(0, α),   B_k ~ N(0, β),   v_k ~ N(B_k, 1) ∈ R⁶⁰
    W_k ~ N(u_k, 1) ∈ R⁶⁰ˣ¹⁰,   b_k ~ N(u_k, 1) ∈ R¹⁰
    x ~ N(v_k, Σ),   Σ = diag(j^−1.2),   y = argmax softmax(xW_k + b_k)
    per client ⌊0.9·n_k⌋ samples train; the test set is the union of the others

α and β are standard deviations, as in the authors' generator; the paper's N(0, α) leaves it open. SYNTHETIC(0, 0) is
not IID, since every client still draws its own W_k; use SyntheticIid. α changes no label: u_k adds u_k·(Σ_j x_j + 1) to
all ten logits, which softmax and argmax ignore. The setting exists because the data set is named after it.
Differs from the paper: inputs are rounded to float32 after labelling. With legacy_seed = s the draws before that
rounding equal those of the authors' script after numpy.random.seed(s), bit for bit; the script itself sets no seed. The
hold-out comes from the keyed streams, not from Python's unseeded shuffle.
Reference: Li et al. FedProx. MLSys 2020. arXiv:1812.06127.
"""

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch

from turnout.array_types import Floats, Ids
from turnout.data.assemble import laid_out
from turnout.data.federation import Federation
from turnout.data.holdout import drawn_for_holdout, train_sizes
from turnout.limits import check_memory
from turnout.settings import Clients, Count, NonNegative, Range, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm

DIM = 60
CLASSES = 10
MEAN_SIZE = 50 + math.exp(4 + 2)  # expected number of samples of a client whose size is drawn
OVERHEAD_BYTES = 1000  # memory per client besides its samples: its mean, its offsets, Python objects
VARIANCES: Floats = np.power(np.arange(1, DIM + 1, dtype=np.float64), -1.2)  # the diagonal of Σ
LegacySeed = Annotated[int, Range(least=0, most=2**32 - 1)]  # seed of numpy's RandomState


class Client(NamedTuple):
    """One client's samples and the parameters of their distribution."""

    x: Floats
    y: Ids
    weight: Floats  # W_k
    bias: Floats  # b_k
    mean: Floats  # v_k


def lognormal_sizes(rng: np.random.RandomState, clients: int) -> Ids:
    """Return ⌊LogNormal(4, 2)⌋ + 50 for each client."""
    return rng.lognormal(4, 2, clients).astype(np.int64) + 50


@cache
def square_root() -> Floats:
    """Return √Σ as numpy's multivariate_normal computes it; cached, since numpy repeats it for every client."""
    _, variances, directions = np.linalg.svd(np.diag(VARIANCES))
    return np.asarray(np.sqrt(variances)[:, None] * directions)


def labelled(rng: np.random.RandomState, size: int, weight: Floats, bias: Floats, mean: Floats) -> Client:
    """Return a client with drawn inputs and the labels of its model."""
    x = rng.standard_normal((size, DIM)) @ square_root()
    x += mean
    return Client(x, np.argmax(x @ weight + bias, axis=1), weight, bias, mean)


def synthetic_clients(rng: np.random.RandomState, sizes: Ids, alpha: float, beta: float) -> Iterator[Client]:
    """Yield the clients in order; the order of draws is that of the authors' script."""
    model_means = rng.normal(0, alpha, len(sizes))  # u_k
    input_means = rng.normal(0, beta, len(sizes))  # B_k
    means = [rng.normal(centre, 1, DIM) for centre in input_means]  # v_k
    for size, centre, mean in zip(sizes, model_means, means, strict=True):
        weight = rng.normal(centre, 1, (DIM, CLASSES))
        yield labelled(rng, int(size), weight, rng.normal(centre, 1, CLASSES), mean)


def legacy_generator(legacy_seed: int | None, streams: Streams) -> np.random.RandomState:
    """Return numpy's legacy generator, which the authors' script uses."""
    keyed = int(streams.keys("synthetic")[0] >> np.uint64(32))
    return np.random.RandomState(keyed if legacy_seed is None else legacy_seed)


def federated(name: str, clients: Iterable[Client], sizes: Ids, holdout: float, streams: Streams) -> Federation:
    """Return a federation over one tensor: all training samples by client, then all hold-outs."""
    train = train_sizes(sizes, holdout)
    is_held_out = np.split(drawn_for_holdout(sizes, sizes - train, streams), np.cumsum(sizes)[:-1])
    x = torch.empty(int(sizes.sum()), DIM)
    y = torch.empty(int(sizes.sum()), dtype=torch.int64)
    starts = np.cumsum(train) - train
    held_starts = int(train.sum()) + np.cumsum(sizes - train) - (sizes - train)
    for client, out, start, held_start in zip(clients, is_held_out, starts, held_starts, strict=True):
        for lo, mask in ((int(start), ~out), (int(held_start), out)):
            x[lo : lo + int(mask.sum())] = torch.from_numpy(client.x[mask])
            y[lo : lo + int(mask.sum())] = torch.from_numpy(client.y[mask])
    return laid_out(name=name, x=x, y=y, train=train, holdout=sizes - train, num_classes=CLASSES)


def check_room(rule: str, clients: int, samples: float) -> None:
    """Raise if the machine has too little memory for this many clients with this many samples each."""
    needed = clients * (OVERHEAD_BYTES + samples * (DIM * 4 + 8))  # float32 inputs, int64 labels
    advice = "Lower data.clients or data.samples."
    check_memory(needed, f"{rule} with {clients:,} clients of about {samples:,.0f} samples", advice)


@rule("data")
class Synthetic:
    """SYNTHETIC(α, β): 60 inputs, 10 classes."""

    alpha: NonNegative = 1.0  # standard deviation α of the clients' model means u_k, 0 or more; 0, 0.5 or 1 is usual
    beta: NonNegative = 1.0  # standard deviation β of the clients' input means B_k, 0 or more; 0, 0.5 or 1 is usual
    clients: Clients = 30  # number of clients N, 1 or more; 30 is usual
    # number of samples n_k of every client, hold-out included, 1 or more; none draws log-normal sizes (usual)
    samples: Count | None = None
    holdout: ShareBelowOne = 0.1  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    # seed s of the authors' script, 0 to 2³² − 1, to repeat its draws; none draws from the run's seed (usual)
    legacy_seed: LegacySeed | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(DIM,), outputs=CLASSES)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        check_room("Synthetic", self.clients, MEAN_SIZE if self.samples is None else self.samples)
        rng = legacy_generator(self.legacy_seed, streams)
        sizes = lognormal_sizes(rng, self.clients)
        if self.samples is not None:
            sizes = np.full(self.clients, self.samples, dtype=np.int64)
        clients = synthetic_clients(rng, sizes, self.alpha, self.beta)
        return federated(f"synthetic({self.alpha:g}, {self.beta:g})", clients, sizes, self.holdout, streams)
