"""FLGo: its FedAvg server on a task made from the workload's clients, no evaluation."""

import importlib
import os
import sys
import tempfile
import types
from pathlib import Path

import flgo
import flgo.algorithm.fedavg
import flgo.algorithm.fedbase
import torch
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe

from benchmarks.models import mean_loss
from benchmarks.peers.laps import Laps
from benchmarks.workloads import Workload, samples

CONFIG = """
import torch
from benchmarks.models import build
from benchmarks.workloads import WORKLOADS, samples
work = WORKLOADS["{name}"]
x, y = map(torch.from_numpy, samples(work))
train_data = torch.utils.data.TensorDataset(x.flatten(0, 1), y.flatten())
train_data.targets = y.flatten().tolist()
test_data = None
def get_model(): return build(work)
"""


class GivenPartition(BasicPartitioner):
    """Client i holds the i-th stretch of the samples."""

    def __init__(self, work: Workload) -> None:
        self.num_clients, self.each = work.num_clients, work.num_examples

    def __call__(self, data: object) -> list[list[int]]:
        """Return the positions each client holds."""
        return [list(range(i * self.each, (i + 1) * self.each)) for i in range(self.num_clients)]


def make_task(work: Workload) -> str:
    """Write FLGo's files for the workload into the current folder and return the task's name."""
    Path("config.py").write_text(CONFIG.format(name=work.name))
    name = flgo.gen_benchmark_from_file(
        "bench", "config.py", target_path=".", data_type="cv", task_type="classification"
    )
    benchmark = importlib.import_module(name)
    benchmark.visualize = lambda *_: None  # its picture of every sample takes minutes
    # PyTorch 2.13 asks a Subset for whole batches; FLGo 0.4.4 only answers for one sample
    FromDatasetPipe.TaskDataset.__getitems__ = lambda self, places: [self[place] for place in places]
    flgo.gen_task_by_(benchmark, GivenPartition(work), "task")
    return "task"


def timed_fedavg(laps: Laps) -> types.ModuleType:
    """Return FLGo's FedAvg with a stopwatch around a round."""

    class Server(getattr(flgo.algorithm.fedavg, "Server", flgo.algorithm.fedbase.BasicServer)):
        def iterate(self):
            laps.start()
            result = super().iterate()
            laps.stop()
            return result

    algorithm = types.ModuleType("timed_fedavg")
    algorithm.Server = Server
    algorithm.Client = getattr(flgo.algorithm.fedavg, "Client", flgo.algorithm.fedbase.BasicClient)
    return algorithm


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload
    laps.out = None if laps.out is None else laps.out.absolute()
    torch.set_num_threads(laps.threads)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        option = {"num_rounds": laps.rounds, "num_epochs": work.epochs, "batch_size": work.batch_size}
        option |= {"learning_rate": work.lr, "proportion": 1.0, "sample": "full", "gpu": [], "num_parallels": 1}
        option |= {
            "train_holdout": 0.0,
            "test_holdout": 0.0,
            "eval_interval": -1,
            "no_log_console": True,
            "no_tqdm": True,
        }
        server = flgo.init(make_task(work), timed_fedavg(laps), option=option)
        server.run()
        laps.finish(mean_loss(server.model, *map(torch.from_numpy, samples(work))))
        os.chdir("/")


if __name__ == "__main__":
    main()
