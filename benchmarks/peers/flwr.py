"""Flower: FedAvg of its message API in the Ray simulation, no evaluation.

`--threads` is CPUs per client: 1 gives two actors on two cores, 2 gives one actor with two operation threads.
"""

import logging
import os
import tempfile

HOME = tempfile.mkdtemp(prefix="flwr-")
os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_HOME": HOME,
    "PYTHONPATH": os.getcwd(),
}

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from benchmarks.models import build, mean_loss  # noqa: E402
from benchmarks.peers.laps import Laps, cut_down  # noqa: E402
from benchmarks.workloads import EVERY_WORKLOAD, samples  # noqa: E402

CORES = 2
held: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # one copy per actor process


def train(message: Message, context: Context) -> Message:
    """Fit one client, in an actor."""
    from benchmarks.peers import flwr as here  # the actor's own module, so that it loads the data once

    config = message.content["config"]
    work, client = EVERY_WORKLOAD[config["workload"]], context.node_config["partition-id"]
    if config["clients"] != work.num_clients:
        work = cut_down(work, config["clients"])
    torch.set_num_threads(config["threads"])
    if work.name not in here.held:
        here.held[work.name] = tuple(map(torch.from_numpy, samples(work)))
    x, y = (values[client] for values in here.held[work.name])
    model = build(work)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for positions in torch.randperm(work.num_examples).split(work.batch_size):
            optimiser.zero_grad()
            F.cross_entropy(model(x[positions]), y[positions]).backward()
            optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": work.num_examples})}
    return Message(content=RecordDict(content), reply_to=message)


class TimedFedAvg(FedAvg):
    """Flower's FedAvg with a stopwatch from the first message out to the average."""

    laps: Laps

    def configure_train(self, server_round, arrays, config, grid):
        """Begin a round."""
        self.laps.start()
        work, config["threads"] = self.laps.workload, self.laps.threads
        config["workload"], config["clients"] = work.name, work.num_clients
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """End a round."""
        result = super().aggregate_train(server_round, replies)
        self.laps.stop()
        return result


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload
    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(train)

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.set_num_threads(laps.threads)
        asked = {"fraction_train": work.cohort / work.num_clients, "min_train_nodes": work.cohort}
        strategy = TimedFedAvg(
            **asked, min_available_nodes=work.num_clients, fraction_evaluate=0.0, min_evaluate_nodes=0
        )
        strategy.laps = laps
        model = build(work)
        result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=laps.rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        laps.finish(mean_loss(model, *map(torch.from_numpy, samples(work))))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {
        "client_resources": {"num_cpus": laps.threads, "num_gpus": 0.0},
        "init_args": {"num_cpus": CORES, "include_dashboard": False, "logging_level": "ERROR"},
    }
    run_simulation(server_app, client_app, num_supernodes=work.num_clients, backend_config=backend)


if __name__ == "__main__":
    main()
