"""pfl: federated averaging on its simulated backend, no evaluation."""

import logging

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.models import build, mean_loss
from benchmarks.peers.laps import Laps
from benchmarks.workloads import Workload, samples

NEVER = 10**6


class WithLoss(nn.Module):
    """The module pfl wants: one that knows its own loss and metrics."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.net = build(workload)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.net(x)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        """Return the mean loss of a batch."""
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = False) -> dict[str, Weighted]:
        """Return what pfl would log."""
        return {"loss": Weighted(F.cross_entropy(self(x), y, reduction="sum").item(), len(y))}


class Clock(TrainingProcessCallback):
    """Stops at the end of each of pfl's iterations, and starts the next."""

    def __init__(self, laps: Laps) -> None:
        self.laps = laps

    def after_central_iteration(self, aggregate_metrics: Metrics, model: object, *, central_iteration: int):
        """End a round."""
        self.laps.stop(and_start=True)
        return False, Metrics()


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload
    torch.set_num_threads(laps.threads)
    logging.disable(logging.CRITICAL)
    x, y = map(torch.from_numpy, samples(work))

    def shuffled(client: int) -> Dataset:  # pfl cuts batches in the order it is given: once shuffled a round
        order = torch.randperm(work.num_examples)
        return Dataset((x[client][order], y[client][order]), user_id=str(client))

    data = FederatedDataset(shuffled, get_user_sampler("minimize_reuse", list(range(work.num_clients))))
    module = WithLoss(work)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
    algorithm = FederatedAveraging()
    algorithm._current_central_iteration = 1  # iteration 0 always evaluates: do not charge pfl for that
    params = NNAlgorithmParams(
        central_num_iterations=laps.rounds + 1,
        evaluation_frequency=NEVER,
        train_cohort_size=work.cohort,
        val_cohort_size=0,
    )
    train = NNTrainHyperParams(
        local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch_size
    )
    laps.start()
    algorithm.run(
        params,
        SimulatedBackend(training_data=data, val_data=data),
        model,
        train,
        NNEvalHyperParams(local_batch_size=work.num_examples),
        callbacks=[Clock(laps)],
        send_metrics_to_platform=False,
    )
    laps.finish(mean_loss(module, x, y))


if __name__ == "__main__":
    main()
