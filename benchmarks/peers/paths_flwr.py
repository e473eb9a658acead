"""Flower: the models its strategies pass through on given quadratics. Arguments: what is given, where to write."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, strategy
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.peers.quadratics import (
    ADAPTIVITY,
    ATTACKERS,
    BETA1,
    BETA2,
    KEPT,
    MOMENTUM,
    SERVER_LR,
    TINY_ADAPTIVITY,
    TRIMMED,
    Quadratics,
)


class Clients(Grid):
    """Nodes in this very process; those online in a round are the cohort of that round."""

    def __init__(self, given: Quadratics, *, by_size: bool) -> None:
        self.given, self.by_size, self.round = given, by_size, 0

    def get_node_ids(self) -> list[int]:
        """Return who is online."""
        return [int(client) + 1 for client in self.given.cohorts[self.round]]  # 0 is no node

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Fit, and count the round."""
        replies = [self.trained(message) for message in messages]
        self.round += bool(replies)
        return replies

    def trained(self, message: Message) -> Message:
        """Return a client's model."""
        client = message.metadata.dst_node_id - 1
        model = self.given.local_model(message.content["arrays"]["x"].numpy(), client)
        size = int(self.given.sizes[client]) if self.by_size else 1
        content = {"arrays": ArrayRecord({"x": Array(model)}), "metrics": MetricRecord({"num-examples": size})}
        return Message(content=RecordDict(content), reply_to=message)

    def unused(self, *_: object, **__: object) -> None:
        """Stand in for what no strategy calls here."""
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = unused
    run = property(unused)


class RightlyCountedAdam(strategy.FedAdam):
    """FedAdam whose bias correction has the exponent t in place of t + 1."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):
        """Pass on the round that makes the exponent t."""
        return super().aggregate_train(server_round - 1, replies)


def strategies() -> Iterator[tuple[str, strategy.Strategy, bool]]:
    """Yield each strategy with its name, and whether clients count by their size."""
    everyone = {"fraction_train": 1.0, "fraction_evaluate": 0.0, "min_evaluate_nodes": 0}
    betas = {"beta_1": BETA1, "beta_2": BETA2}
    yield "FedAvg", strategy.FedAvg(**everyone), True
    yield "FedAvgM", strategy.FedAvgM(**everyone, server_learning_rate=SERVER_LR, server_momentum=MOMENTUM), True
    yield "FedAdagrad", strategy.FedAdagrad(**everyone, eta=SERVER_LR, tau=ADAPTIVITY), True
    yield "FedYogi", strategy.FedYogi(**everyone, eta=SERVER_LR, tau=ADAPTIVITY, **betas), True
    yield "FedAdam", strategy.FedAdam(**everyone, eta=SERVER_LR, tau=TINY_ADAPTIVITY, **betas), True
    counted = RightlyCountedAdam(**everyone, eta=SERVER_LR, tau=TINY_ADAPTIVITY, **betas)
    yield "FedAdam, exponent put right", counted, True
    yield "FedMedian", strategy.FedMedian(**everyone), False
    yield "FedTrimmedAvg", strategy.FedTrimmedAvg(**everyone, beta=TRIMMED), False
    yield "Krum", strategy.Krum(**everyone, num_malicious_nodes=ATTACKERS), False
    kept = {"num_malicious_nodes": ATTACKERS, "num_nodes_to_select": KEPT}
    yield "MultiKrum", strategy.MultiKrum(**everyone, **kept), False


def main() -> None:
    given, out = Quadratics.load(Path(sys.argv[1])), Path(sys.argv[2])
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what its simulation would set
    paths: dict[str, list[np.ndarray]] = {}
    for name, rule, by_size in strategies():
        path = paths[name] = []

        def keep(server_round: int, arrays: ArrayRecord, path: list[np.ndarray] = path) -> None:
            if server_round > 0:
                path.append(arrays["x"].numpy().copy())

        grid = Clients(given, by_size=by_size)
        rule.start(grid, ArrayRecord({"x": Array(given.start)}), num_rounds=len(given.cohorts), evaluate_fn=keep)
    np.savez(out, **{name: np.stack(path) for name, path in paths.items()})


if __name__ == "__main__":
    main()
