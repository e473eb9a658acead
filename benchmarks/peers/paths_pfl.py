"""pfl: the models its SCAFFOLD passes through on given quadratics. Arguments: what is given, where to write."""

import logging
import sys
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.bridge.pytorch.scaffold import PyTorchSCAFFOLDBridge
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import Tensor, nn

from benchmarks.peers.quadratics import LOCAL_LR, LOCAL_STEPS, Quadratics

NEVER = 10**6


class Point(nn.Module):
    """A model that is one vector and knows its quadratic loss."""

    def __init__(self, start: np.ndarray) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start, dtype=torch.float32))

    def loss(self, target: Tensor, eval: bool = False) -> Tensor:
        """Return ½ h‖x‖² − eᵀx, averaged over samples (h, e)."""
        return (0.5 * target[:, 0] * self.x.square().sum() - (target[:, 1:] * self.x).sum(1)).mean()

    def metrics(self, target: Tensor, eval: bool = False) -> dict[str, Weighted]:
        """Return what pfl would log: nothing of interest."""
        return {"loss": Weighted(0.0, len(target))}


class CheckpointStore(TrainingProcessCallback):
    """Keeps the server's model at the end of each round."""

    def __init__(self) -> None:
        self.path: list[np.ndarray] = []

    def after_central_iteration(self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int):
        """Keep a copy."""
        self.path.append(model.pytorch_model.x.detach().numpy().copy())
        return False, Metrics()


class Copies(InMemoryUserStateStorage):
    """Keeps copies: pfl hands over a buffer that it fills again for the next client."""

    def save_state(self, state: MappedVectorStatistics, user_id: str, key: str | None = None) -> None:
        """Keep a copy."""
        super().save_state(state.apply_elementwise(torch.clone), user_id, key)


def path_of(given: Quadratics, storage: InMemoryUserStateStorage, *, from_gradient: bool) -> np.ndarray:
    """Run SCAFFOLD and return the model after each round."""
    turns = iter(given.cohorts.ravel().tolist())
    data = FederatedDataset(
        lambda client: Dataset((torch.tensor(given.targets(client), dtype=torch.float32),), user_id=str(client)),
        lambda: next(turns),
    )
    module, keeper = Point(given.start), CheckpointStore()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
    params = SCAFFOLDParams(
        central_num_iterations=len(given.cohorts),
        evaluation_frequency=NEVER,
        train_cohort_size=given.cohorts.shape[1],
        val_cohort_size=0,
        population=len(given.sizes),
        use_gradient_as_control_variate=from_gradient,
        user_state_storage=storage,
    )
    train = NNTrainHyperParams(local_num_epochs=LOCAL_STEPS, local_learning_rate=LOCAL_LR, local_batch_size=None)
    SCAFFOLD().run(
        params,
        SimulatedBackend(training_data=data, val_data=data),
        model,
        train,
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[keeper],
        send_metrics_to_platform=False,
    )
    return np.stack(keeper.path)


def turned_round(real):
    """Return pfl's local training with its controls, which hold minus the gradient, added with the other sign."""

    def train(model, user_dataset, train_params, local_c, server_c):
        return real(model, user_dataset, train_params, local_c=server_c, server_c=local_c)

    return staticmethod(train)


def main() -> None:
    given, out = Quadratics.load(Path(sys.argv[1])), Path(sys.argv[2])
    logging.disable(logging.CRITICAL)
    paths = {
        "SCAFFOLD": path_of(given, InMemoryUserStateStorage(), from_gradient=False),
        "SCAFFOLD from gradients": path_of(given, InMemoryUserStateStorage(), from_gradient=True),
    }
    real = PyTorchSCAFFOLDBridge.do_control_variate_sgd
    PyTorchSCAFFOLDBridge.do_control_variate_sgd = turned_round(real)
    paths |= {
        "SCAFFOLD, sign put right": path_of(given, InMemoryUserStateStorage(), from_gradient=False),
        "SCAFFOLD from gradients, both put right": path_of(given, Copies(), from_gradient=True),
    }
    np.savez(out, **paths)


if __name__ == "__main__":
    main()
