"""Workloads: one FedAvg round of plain local SGD on data of fixed shape. Needs numpy alone.

W1  softmax regression 60 to 10 on SYNTHETIC(1, 1)      many small steps: overhead shows
W2  MLP 784-200-200-10                                  small enough to stack, large enough to leave the cache
W3  CNN 5x5x32, pool, 5x5x64, pool, 512, 62 classes     bound by arithmetic
W4  two LSTM layers of 256 over 80 characters           bound by arithmetic

Beside other frameworks alone:

W5  the CIFAR-10 benchmark of pfl-research              50 of 1,000 clients a round, CNN with dropout
digits  MLP 64-32-10 on as many samples as digits have  a round of the study of benchmarks.runs_an_hour
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One round: every client holds equally many samples, shuffled once an epoch."""

    name: str
    num_clients: int
    num_examples: int  # of each client
    batch_size: int
    local_steps: int
    lr: float
    example_shape: tuple[int, ...]
    num_classes: int
    cohort_size: int | None = None  # clients that take part in a round; None: everyone
    peers: tuple[str, ...] | None = None  # frameworks that run it; None: all

    @property
    def cohort(self) -> int:
        """How many clients take part in a round."""
        return self.cohort_size or self.num_clients

    @property
    def epochs(self) -> int:
        """Passes over a client's samples in one round."""
        return self.local_steps * self.batch_size // self.num_examples


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            name="W1",
            num_clients=50,
            num_examples=200,
            batch_size=20,
            local_steps=20,
            lr=0.01,
            example_shape=(60,),
            num_classes=10,
        ),
        Workload(
            name="W2",
            num_clients=100,
            num_examples=100,
            batch_size=10,
            local_steps=10,
            lr=0.05,
            example_shape=(784,),
            num_classes=10,
        ),
        Workload(
            name="W3",
            num_clients=20,
            num_examples=100,
            batch_size=20,
            local_steps=5,
            lr=0.05,
            example_shape=(1, 28, 28),
            num_classes=62,
        ),
        Workload(
            name="W4",
            num_clients=10,
            num_examples=50,
            batch_size=10,
            local_steps=5,
            lr=0.5,
            example_shape=(80,),
            num_classes=80,
        ),
    )
}
PEER_WORKLOADS = WORKLOADS | {
    "W5": Workload(
        name="W5",
        num_clients=1000,
        cohort_size=50,
        num_examples=50,
        batch_size=10,
        local_steps=5,
        lr=0.1,
        example_shape=(3, 32, 32),
        num_classes=10,
        peers=("pfl", "flwr"),
    )
}
DIGITS = Workload(
    name="digits",
    num_clients=10,
    num_examples=24,
    batch_size=8,
    local_steps=15,
    lr=0.1,
    example_shape=(64,),
    num_classes=10,
)
EVERY_WORKLOAD = PEER_WORKLOADS | {DIGITS.name: DIGITS}


def samples(workload: Workload) -> tuple[Array, Array]:
    """Return inputs [clients, samples, ...] and labels [clients, samples]; the same on every call."""
    rng = np.random.default_rng(0)
    lead = (workload.num_clients, workload.num_examples)
    if workload.name == "W1":
        return _synthetic(rng, workload)
    labels = rng.integers(0, workload.num_classes, lead)
    if workload.name == "W4":
        return rng.integers(0, workload.num_classes, lead + workload.example_shape), labels
    return rng.standard_normal(lead + workload.example_shape, dtype=np.float32), labels


def _synthetic(rng: np.random.Generator, workload: Workload) -> tuple[Array, Array]:
    """SYNTHETIC(1, 1): each client has its own labelling weights and its own centre of inputs."""
    scale = np.arange(1, 61) ** -0.6  # Σ = diag(j^-1.2)
    x, y = [], []
    for _ in range(workload.num_clients):
        weight_mean, input_mean = rng.normal(0, 1), rng.normal(0, 1)  # u_k, B_k
        centre = rng.normal(input_mean, 1, 60)  # v_k
        weight, bias = rng.normal(weight_mean, 1, (60, 10)), rng.normal(weight_mean, 1, 10)
        inputs = centre + scale * rng.standard_normal((workload.num_examples, 60))
        x.append(inputs.astype(np.float32))
        y.append((inputs @ weight + bias).argmax(1))
    return np.stack(x), np.stack(y)


def shuffled_batches(workload: Workload, rng: np.random.Generator) -> Array:
    """Return positions [clients, steps, batch]: a fresh permutation of every client's samples per epoch."""
    keys = rng.random((workload.num_clients, workload.epochs, workload.num_examples), dtype=np.float32)
    return np.argsort(keys, axis=2).reshape(workload.num_clients, workload.local_steps, workload.batch_size)
