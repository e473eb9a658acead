"""fluke: the models its algorithms pass through on given quadratics. Arguments: what is given, where to write."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.fedavgm import FedAVGM
from fluke.algorithms.fedexp import FedExP
from fluke.algorithms.fednova import FedNova
from fluke.algorithms.fedopt import FedOpt
from fluke.algorithms.scaffold import SCAFFOLD
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from torch import Tensor, nn

from benchmarks.peers.quadratics import (
    ADAPTIVITY,
    BETA1,
    BETA2,
    LOCAL_LR,
    LOCAL_STEPS,
    MOMENTUM,
    SERVER_LR,
    Quadratics,
)

NEVER = 10**6


class Point(nn.Module):
    """A model that is one vector."""

    def __init__(self, start: np.ndarray) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the vector, once per sample."""
        return self.x.expand(len(inputs), -1)


class Quadratic(nn.Module):
    """½ h‖x‖² − eᵀx, averaged over samples (h, e)."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return (0.5 * target[:, 0] * output.square().sum(1) - (target[:, 1:] * output).sum(1)).mean()


class GivenSplit:
    """Hands fluke the given clients."""

    def __init__(self, given: Quadratics) -> None:
        self.given = given

    def assign(self, num_clients: int, batch_size: int):
        """Return each client's training and test loaders, and the server's."""
        loaders = []
        for client in range(num_clients):
            targets = torch.from_numpy(self.given.targets(client))
            tensors = torch.zeros(len(targets), 1, dtype=torch.float64), targets
            loaders.append(FastDataLoader(*tensors, num_labels=1, batch_size=batch_size, skip_singleton=False))
        return (loaders, [None] * num_clients), None


class CheckpointStore(FederationObserver):
    """Keeps the server's model at the end of each round."""

    def __init__(self, server: object) -> None:
        self.server, self.path = server, []

    def end_round(self, round: int) -> None:
        """Keep a copy."""
        self.path.append(self.server.model.x.detach().numpy().copy())


def algorithms() -> Iterator[tuple[str, type[CentralizedFL], Mapping[str, object], int]]:
    """Yield each algorithm with its name, the server's settings and the batch size (0 is all)."""
    shared = {"weighted": True, "tau": ADAPTIVITY, "beta2": BETA2}
    yield "FedExP", FedExP, {"weighted": False}, 0
    yield "FedOpt, adam", FedOpt, shared | {"mode": "adam", "beta1": BETA1, "lr": SERVER_LR}, 0
    yield "FedOpt, adam, rate 1", FedOpt, shared | {"mode": "adam", "beta1": BETA1, "lr": 1.0}, 0
    yield "FedOpt, yogi, rate 1", FedOpt, shared | {"mode": "yogi", "beta1": BETA1, "lr": 1.0}, 0
    yield "FedOpt, adagrad, rate 1", FedOpt, shared | {"mode": "adagrad", "beta1": 0.0, "lr": 1.0}, 0
    yield "SCAFFOLD", SCAFFOLD, {"weighted": False}, 0
    yield "FedAVGM", FedAVGM, {"weighted": True, "momentum": MOMENTUM}, 0
    yield "FedNova", FedNova, {"weighted": True}, 1


def path_of(
    given: Quadratics, algorithm: type[CentralizedFL], server: Mapping[str, object], batch_size: int
) -> np.ndarray:
    """Run one algorithm and return the model after each round."""
    client = DDict(
        batch_size=batch_size,
        local_epochs=LOCAL_STEPS,
        loss=Quadratic,
        optimizer=DDict(name="SGD", lr=LOCAL_LR),
        scheduler=DDict(gamma=1, step_size=NEVER),
    )
    settings = DDict(client=client, server=DDict(**server), model=Point(given.start))
    run = algorithm(len(given.sizes), GivenSplit(given), settings)
    turns = iter(given.cohorts)
    run.server.get_eligible_clients = lambda _: [run.server.clients[client] for client in next(turns)]
    keeper = CheckpointStore(run.server)
    run.set_callbacks(keeper)
    run.run(n_rounds=len(given.cohorts), eligible_perc=0.5, finalize=False)
    return np.stack(keeper.path)


def main() -> None:
    given, out = Quadratics.load(Path(sys.argv[1])), Path(sys.argv[2])
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    env.set_evaluator(ClassificationEval(eval_every=NEVER, n_classes=2))
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    np.savez(out, **{name: path_of(given, *how) for name, *how in algorithms()})


if __name__ == "__main__":
    main()
