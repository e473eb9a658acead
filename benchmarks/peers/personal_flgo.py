"""FLGo: shared and personal models of its Ditto on given networks. Arguments: what is given, where to write."""

import importlib
import os
import sys
import tempfile
import types
from pathlib import Path

import flgo
import numpy as np
from flgo.algorithm import ditto
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe

from benchmarks.peers.networks import BATCH_SIZE, LR, SHARED_STEPS, STRENGTH, Network, flat

CONFIG = """
import sys
from pathlib import Path
import torch
from benchmarks.peers.networks import EncoderHead, Network
given = Network.load(Path(sys.argv[1]))
train_data = torch.utils.data.TensorDataset(torch.tensor(given.inputs), torch.tensor(given.labels))
train_data.targets = given.labels.tolist()
test_data = None
def get_model(): return EncoderHead(given.start)
"""


class GivenPartition(BasicPartitioner):
    """Client i holds the i-th stretch of the samples."""

    def __init__(self, given: Network) -> None:
        self.num_clients, self.sizes = len(given.sizes), given.sizes

    def __call__(self, data: object) -> list[list[int]]:
        """Return the positions each client holds."""
        return [positions.tolist() for positions in np.split(np.arange(self.sizes.sum()), self.sizes.cumsum()[:-1])]


def make_task(given: Network) -> str:
    """Write FLGo's files for the given clients into the current folder and return the task's name."""
    Path("config.py").write_text(CONFIG)
    name = flgo.gen_benchmark_from_file(
        "given", "config.py", target_path=".", data_type="cv", task_type="classification"
    )
    benchmark = importlib.import_module(name)
    benchmark.visualize = lambda *_: None  # its picture of every sample takes minutes
    # PyTorch 2.13 asks a Subset for whole batches; FLGo 0.4.4 only answers for one sample
    FromDatasetPipe.TaskDataset.__getitems__ = lambda self, places: [self[place] for place in places]
    flgo.gen_task_by_(benchmark, GivenPartition(given), "task")
    return "task"


def given_ditto(given: Network, path: list[np.ndarray]) -> types.ModuleType:
    """Return FLGo's Ditto with the given cohorts and mini-batches, which adds the models after each round to `path`."""
    turns = iter(given.cohorts.tolist())

    class Server(ditto.Server):
        def sample(self):
            return next(turns)

        def iterate(self):
            result = super().iterate()
            own = [given.start if client.model is None else flat(client.model) for client in self.clients]
            path.append(np.stack([flat(self.model), *own]))
            return result

    class Client(ditto.Client):
        def initialize(self, *args, **kwargs):
            super().initialize(*args, **kwargs)
            self.batches = (batch for some in given.passes(self.id, ("shared",)) for batch in some)

        def get_batch_data(self):
            return next(self.batches)

    algorithm = types.ModuleType("given_ditto")
    algorithm.Server, algorithm.Client = Server, Client
    return algorithm


def main() -> None:
    sys.argv[1:] = [str(Path(name).absolute()) for name in sys.argv[1:]]
    given, out, path = Network.load(Path(sys.argv[1])), Path(sys.argv[2]), []
    option = {"num_rounds": len(given.cohorts), "num_steps": SHARED_STEPS, "batch_size": BATCH_SIZE, "proportion": 0.5}
    option |= {"learning_rate": LR, "algo_para": [STRENGTH], "gpu": [], "num_parallels": 1, "train_holdout": 0.0}
    option |= {"test_holdout": 0.0, "eval_interval": -1, "no_log_console": True, "no_tqdm": True}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        flgo.init(make_task(given), given_ditto(given, path), option=option).run()
        os.chdir("/")
    np.savez(out, Ditto=np.stack(path))


if __name__ == "__main__":
    main()
