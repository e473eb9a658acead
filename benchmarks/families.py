"""Families of models beside the plain loop: python -m benchmarks.families [names] [--markdown] [--json FILE].

Each family is one FedAvg round of local SGD on random data. The plain loop (copy the model, torch.optim, one client
after another) runs with one and with two operation threads, the better of which counts; all take turns in one process,
and medians are compared. A family's bar is a number of times as fast as its plain loop, or a share of the ratio that
another family reaches in the same run.
"""

import argparse
import copy
import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.reporting import print_table, write_json
from benchmarks.turnout_rounds import FOREVER, TurnoutRounds
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD

REPETITIONS, LONGEST = 5, 6.0  # rounds of each, and seconds of a family
CLASSES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One workload: a module, random samples for it, and the bar."""

    make: Callable[[], nn.Module]
    samples: Callable[[np.random.Generator, int], Tensor]
    bar: float  # times the plain loop, or the share of the ratio of `beside`
    beside: str = ""
    clients: int = 50
    examples: int = 100  # of each client
    batch: int = 10
    lr: float = 0.05


def vectors(size: int) -> Callable[[np.random.Generator, int], Tensor]:
    return lambda rng, count: torch.from_numpy(rng.standard_normal((count, size), dtype=np.float32))


def images(*shape: int) -> Callable[[np.random.Generator, int], Tensor]:
    return lambda rng, count: torch.from_numpy(rng.standard_normal((count, *shape), dtype=np.float32))


def tokens(length: int, vocabulary: int) -> Callable[[np.random.Generator, int], Tensor]:
    return lambda rng, count: torch.from_numpy(rng.integers(0, vocabulary, (count, length)))


def mlp(activation: Callable[[], nn.Module], dropout: float = 0.0, norm: Any = None) -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside in ((128, 200), (200, 200)):
        layers += [nn.Linear(inside, outside), *([norm(outside)] if norm else []), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(200, CLASSES))


class Residual(nn.Module):
    """LayerNorm, residual connections and a concatenation, in a forward written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(128, 128)
        self.blocks = nn.ModuleList(nn.Linear(128, 128) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(128) for _ in range(2))
        self.group = nn.GroupNorm(8, 256)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = torch.relu(self.inner(x))
        for block, norm in zip(self.blocks, self.norms, strict=True):
            h = h + F.gelu(block(norm(h)))
        return self.head(self.group(torch.cat([h, x], dim=1)))


class FunctionalDropout(nn.Module):
    """Dropout called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(128, 200), nn.Linear(200, 200), nn.Linear(200, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = F.dropout(F.relu(self.first(x)), 0.2, self.training)
        return self.head(F.dropout(F.relu(self.second(h)), 0.2, self.training))


class Bag(nn.Module):
    """An embedding bag of many words, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(5000, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.bag(x))


class Words(nn.Module):
    """An embedding of many words, their mean, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden, self.head = nn.Embedding(5000, 32), nn.Linear(32, 64), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(torch.relu(self.hidden(self.embedding(x).mean(1))))


class Transformer(nn.Module):
    """Two blocks with attention, before which comes LayerNorm."""

    def __init__(self, with_module: bool) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(100, 64), nn.Parameter(torch.zeros(1, 32, 64))
        self.blocks = nn.ModuleList(Block(with_module) for _ in range(2))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = self.embedding(x) + self.place
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


class Block(nn.Module):
    """Attention and a network of two layers, each with a residual connection."""

    def __init__(self, with_module: bool) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(64), nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True) if with_module else Attention()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.with_module = with_module

    def forward(self, h: Tensor) -> Tensor:
        """Return the sequence after this block."""
        n = self.one(h)
        h = h + (self.attention(n, n, n, need_weights=False)[0] if self.with_module else self.attention(n))
        return h + self.down(F.gelu(self.up(self.two(h))))


class Attention(nn.Module):
    """Attention by PyTorch's function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, h: Tensor) -> Tensor:
        """Return what each place attends to."""
        q, k, v = self.inner(h).unflatten(2, (12, 16)).transpose(1, 2).chunk(3, dim=1)
        return self.outer(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    """An embedding, a recurrent layer of 64 units and a head on its last output."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(80, 16), kind(16, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.layer(self.embedding(x))[0][:, -1])


class LowRank(nn.Module):
    """Frozen layers with a trained product of two thin matrices beside each, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.bases = nn.ModuleList(nn.Linear(256, 256).requires_grad_(False) for _ in range(3))
        self.down = nn.ParameterList(nn.Parameter(0.05 * torch.randn(256, 4)) for _ in range(3))
        self.up = nn.ParameterList(nn.Parameter(torch.zeros(4, 256)) for _ in range(3))
        self.head = nn.Linear(256, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        for base, down, up in zip(self.bases, self.down, self.up, strict=True):
            x = torch.relu(base(x) + x @ down @ up)
        return self.head(x)


def frozen_features() -> nn.Module:
    base = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    )  # fmt: skip
    return nn.Sequential(base.requires_grad_(False), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def lenet(norm: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), *([nn.BatchNorm2d(6)] if norm else []), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), *([nn.BatchNorm2d(16)] if norm else []), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


class Unusual(nn.Module):
    """A forward pass that depends on the data: nothing but one client after another will do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 200), nn.Linear(200, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.second(torch.relu(self.first(x if float(x.sum()) > 0 else -x)))


ACTIVATIONS = (nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)
FAMILIES: dict[str, Family] = {
    "mlp-relu": Family(make=lambda: mlp(nn.ReLU), samples=vectors(128), bar=4.0),
    **{
        f"mlp-{kind.__name__.lower()}": Family(
            make=lambda kind=kind: mlp(kind), samples=vectors(128), bar=0.7, beside="mlp-relu"
        )
        for kind in ACTIVATIONS
    },
    "dropout": Family(make=lambda: mlp(nn.ReLU, 0.2), samples=vectors(128), bar=0.6, beside="mlp-relu"),
    "f-dropout": Family(make=FunctionalDropout, samples=vectors(128), bar=0.6, beside="mlp-relu"),
    "residual": Family(make=Residual, samples=vectors(128), bar=4.0),
    "batchnorm-mlp": Family(make=lambda: mlp(nn.ReLU, norm=nn.BatchNorm1d), samples=vectors(128), bar=4.0),
    "batchnorm-cnn": Family(make=lambda: lenet(True), samples=images(3, 32, 32), bar=1.5, clients=20, examples=50),
    "embedding": Family(make=Words, samples=tokens(20, 5000), bar=5.0),
    "embedding-bag": Family(make=Bag, samples=tokens(20, 5000), bar=5.0),
    "transformer": Family(make=lambda: Transformer(False), samples=tokens(32, 100), bar=2.0, clients=20, examples=50),
    "attention-module": Family(
        make=lambda: Transformer(True), samples=tokens(32, 100), bar=2.0, clients=20, examples=50
    ),
    "gru": Family(make=lambda: Recurrent(nn.GRU), samples=tokens(20, 80), bar=3.5, clients=30, examples=50),
    "rnn": Family(make=lambda: Recurrent(nn.RNN), samples=tokens(20, 80), bar=3.5, clients=30, examples=50),
    "lstm": Family(make=lambda: Recurrent(nn.LSTM), samples=tokens(20, 80), bar=1.5, clients=30, examples=50),
    "low-rank": Family(make=LowRank, samples=vectors(256), bar=8.0),
    "frozen-features": Family(make=frozen_features, samples=images(3, 32, 32), bar=8.0, clients=20, examples=50),
    "lenet": Family(make=lenet, samples=images(3, 32, 32), bar=1.6, clients=20, examples=50),
    "other": Family(make=Unusual, samples=vectors(128), bar=0.95),
}


class PlainRounds:
    """FedAvg as one would write it first."""

    def __init__(self, family: Family, x: Tensor, y: Tensor, threads: int) -> None:
        self.family, self.x, self.y, self.threads = family, x, y, threads
        self.model = built(family)
        self.rng = np.random.default_rng(1)

    def round(self) -> None:
        """Train every client for one epoch, and average."""
        torch.set_num_threads(self.threads)
        states = []
        for x, y in zip(self.x, self.y, strict=True):
            local = copy.deepcopy(self.model)
            trained = [p for p in local.parameters() if p.requires_grad]
            optimiser = torch.optim.SGD(trained, lr=self.family.lr)
            for where in torch.from_numpy(self.rng.permutation(len(y))).split(self.family.batch):
                optimiser.zero_grad()
                F.cross_entropy(local(x[where]), y[where]).backward()
                optimiser.step()
            states.append(local.state_dict())
        mean = {name: sum(s[name] for s in states) / len(states) for name in states[0]}
        self.model.load_state_dict({name: value.to(states[0][name].dtype) for name, value in mean.items()})


def built(family: Family) -> nn.Module:
    torch.manual_seed(0)
    return family.make()


def turnout_rounds(family: Family, x: Tensor, y: Tensor) -> TurnoutRounds:
    federation = from_clients(list(zip(x, y, strict=True)), num_classes=CLASSES)
    task = Task(federation=federation, module=built(family), loss=losses.cross_entropy)
    local = SGD(lr=family.lr, batch_size=family.batch, epochs=1)
    plan = Plan(local=local, rounds=FOREVER, aggregation=FedAvg(weighting="ratio"), evaluate=Cadence(every=FOREVER))
    return TurnoutRounds(task, plan)


def measured(name: str) -> dict[str, Any]:
    """Return one family's seconds a round, interleaved, and its ratio."""
    family, rng = FAMILIES[name], np.random.default_rng(0)
    x = family.samples(rng, family.clients * family.examples).unflatten(0, (family.clients, family.examples))
    y = torch.from_numpy(rng.integers(0, CLASSES, (family.clients, family.examples)))
    ours = turnout_rounds(family, x, y)
    ours.settle()
    entrants = {
        "plain, 1 thread": PlainRounds(family, x, y, 1).round,
        "plain, 2 threads": PlainRounds(family, x, y, 2).round,
    }
    entrants["turnout"] = ours.round
    seconds: dict[str, list[float]] = {each: [] for each in entrants}
    for round in entrants.values():
        round()
    begun = time.perf_counter()
    for _ in range(REPETITIONS):
        if time.perf_counter() - begun > LONGEST:
            break
        for each, round in entrants.items():
            start = time.perf_counter()
            round()
            seconds[each].append(time.perf_counter() - start)
    medians = {each: statistics.median(values) for each, values in seconds.items()}
    plain = min(value for each, value in medians.items() if each != "turnout")
    how = ours.how()
    kernels = [kernel.name for prepared in ours.engine.prepared.values() for kernel in prepared.kernels]
    ours.close()
    gc.collect()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"ratio": plain / medians["turnout"], "seconds": medians, "ran_as": how, "kernels": kernels, "peak_mb": peak}


def report(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return every family's ratio, its bar and whether it is met."""
    wanted = list(dict.fromkeys([*(FAMILIES[n].beside for n in names if FAMILIES[n].beside), *names]))
    results: dict[str, dict[str, Any]] = {}
    for name in wanted:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        result, family = measured(name), FAMILIES[name]
        bar = family.bar * (results[family.beside]["ratio"] if family.beside else 1.0)
        results[name] = {**result, "bar": bar, "met": result["ratio"] >= bar}
    return results


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the results as a table of a page."""
    lines = ["| family | times the plain loop | bar | met | peak memory, MB |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows_of(results)]
    return "\n".join(lines)


def rows_of(results: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return one row of the table for each family."""
    return [
        [name, f"{r['ratio']:.1f}", f"{r['bar']:.2g}", "yes" if r["met"] else "no", str(r["peak_mb"])]
        for name, r in results.items()
    ]


def main() -> int:
    """Measure the families of these names, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"families to measure, of {', '.join(FAMILIES)}")
    parser.add_argument("--markdown", action="store_true", help="print the table of a page")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in FAMILIES]:
        parser.error(f"No family {', '.join(unknown)}; there are {', '.join(FAMILIES)}.")
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    results = report(given.names or list(FAMILIES))
    if given.markdown:
        print(table(results))
    else:
        header = ["family", "times plain", "bar", "met", "peak MB"]
        print_table("Families of models beside the plain loop", header, rows_of(results))
    write_json(given.json, results)
    return 0 if all(result["met"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
