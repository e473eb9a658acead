"""fluke: FedAvg with its fast loader, no evaluation."""

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver

from benchmarks.models import build, mean_loss
from benchmarks.peers.laps import Laps
from benchmarks.workloads import samples

NEVER = 10**6


class GivenSplit:
    """Hands fluke the workload's own clients."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, num_classes: int) -> None:
        self.x, self.y, self.num_classes = x, y, num_classes

    def assign(self, num_clients: int, batch_size: int):
        """Return each client's training and test loaders, and the server's."""

        def loader(client: int) -> FastDataLoader:
            tensors = self.x[client], self.y[client]
            return FastDataLoader(*tensors, num_labels=self.num_classes, batch_size=batch_size, shuffle=True)

        return ([loader(client) for client in range(num_clients)], [None] * num_clients), None


class Clock(FederationObserver):
    """Starts and stops with fluke's rounds."""

    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def start_round(self, round: int, global_model: object) -> None:
        """Begin a round."""
        self.laps.start()

    def end_round(self, round: int) -> None:
        """End a round."""
        self.laps.stop()


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload
    torch.set_num_threads(laps.threads)
    x, y = map(torch.from_numpy, samples(work))
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    env.set_evaluator(ClassificationEval(eval_every=NEVER, n_classes=work.num_classes))
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    client = DDict(
        batch_size=work.batch_size,
        local_epochs=work.epochs,
        loss="CrossEntropyLoss",
        optimizer=DDict(name="SGD", lr=work.lr),
        scheduler=DDict(gamma=1, step_size=NEVER),
    )
    settings = DDict(client=client, server=DDict(weighted=True), model=build(work))
    algorithm = FedAVG(work.num_clients, GivenSplit(x, y, work.num_classes), settings)
    algorithm.set_callbacks(Clock(laps))
    algorithm.run(n_rounds=laps.rounds, eligible_perc=1.0)
    laps.finish(mean_loss(algorithm.server.model, x, y))


if __name__ == "__main__":
    main()
