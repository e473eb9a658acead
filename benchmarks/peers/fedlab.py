"""FedLab: FedAvg in its standalone pipeline with the serial trainer, no evaluation."""

import logging

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.models import build, mean_loss
from benchmarks.peers.laps import Laps
from benchmarks.workloads import samples


class Clients:
    """The workload's clients, as FedLab asks for them."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.sets = [TensorDataset(a, b) for a, b in zip(x, y, strict=True)]

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        """Return one client's batches."""
        return DataLoader(self.sets[client], batch_size=batch_size, shuffle=True)


class TimedPipeline(StandalonePipeline):
    """The pipeline calls `evaluate` at the end of each round: the stopwatch sits there."""

    laps: Laps

    def evaluate(self) -> None:
        """End a round."""
        self.laps.stop(and_start=True)


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload
    torch.set_num_threads(laps.threads)
    logging.disable(logging.CRITICAL)
    x, y = map(torch.from_numpy, samples(work))
    trainer = FedAvgSerialClientTrainer(build(work), work.num_clients)
    trainer.setup_dataset(Clients(x, y))
    trainer.setup_optim(work.epochs, work.batch_size, work.lr)
    handler = FedAvgServerHandler(build(work), laps.rounds, 1.0)
    pipeline = TimedPipeline(handler, trainer)
    pipeline.laps = laps
    laps.start()
    pipeline.main()
    laps.finish(mean_loss(handler.model, x, y))


if __name__ == "__main__":
    main()
