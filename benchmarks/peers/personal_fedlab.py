"""FedLab: shared and personal models of its Ditto on given networks. Arguments: what is given, where to write."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from fedlab.contrib.algorithm.ditto import DittoSerialClientTrainer, DittoServerHandler
from fedlab.core.standalone import StandalonePipeline

from benchmarks.peers.networks import BATCH_SIZE, LR, STRENGTH, EncoderHead, Network, Purpose, flat


class GivenLoader:
    """Each pass over it is the next one of a client."""

    def __init__(self, given: Network, client: int, purposes: Sequence[Purpose]) -> None:
        self.passes = given.passes(client, purposes)

    def __iter__(self):
        """Begin the next pass."""
        return iter(next(self.passes))


class GivenData:
    """Hands FedLab the given clients."""

    def __init__(self, given: Network) -> None:
        self.loaders = [GivenLoader(given, client, ("shared", "own")) for client in range(len(given.sizes))]

    def get_dataloader(self, client: int, batch_size: int) -> GivenLoader:
        """Return the client's loader."""
        return self.loaders[client]


class MadeToRun(DittoSerialClientTrainer):
    """FedLab's own training of a client, with the names put right that its loop over clients has wrong."""

    def local_process(self, payload, id_list):
        """Train each client's two models."""
        self.args = SimpleNamespace(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr, mu=STRENGTH)
        for client in id_list:
            loader = self.dataset.get_dataloader(client, self.batch_size)
            self.parameters[client], sent = self.train(payload[0], self.parameters[client], loader)
            self.ditto_gmodels.append(sent)


class GivenCohorts(StandalonePipeline):
    """Selects whom it is told, and keeps the models at the end of each round."""

    def __init__(self, given: Network, handler: DittoServerHandler, trainer: DittoSerialClientTrainer) -> None:
        super().__init__(handler, trainer)
        turns = iter(given.cohorts.tolist())
        handler.sample_clients = lambda: next(turns)
        self.path = []

    def evaluate(self) -> None:
        """Keep copies."""
        own = [parameters.numpy().copy() for parameters in self.trainer.parameters]
        self.path.append(np.stack([flat(self.handler.model), *own]))


def path_of(given: Network, kind: type[DittoSerialClientTrainer]) -> np.ndarray:
    """Run Ditto and return the shared model and every client's own after each round."""
    trainer = kind(EncoderHead(given.start), len(given.sizes))
    trainer.setup_dataset(GivenData(given))
    trainer.setup_optim(1, BATCH_SIZE, LR)
    rounds, cohort_size = given.cohorts.shape
    handler = DittoServerHandler(EncoderHead(given.start), rounds, cohort_size / len(given.sizes))
    run = GivenCohorts(given, handler, trainer)
    run.main()
    return np.stack(run.path)


def main() -> None:
    given, out = Network.load(Path(sys.argv[1])), Path(sys.argv[2])
    logging.disable(logging.CRITICAL)
    right = path_of(given, MadeToRun)
    try:
        as_it_is = path_of(given, DittoSerialClientTrainer)
    except (TypeError, AttributeError):
        as_it_is = np.full_like(right, np.nan)
    np.savez(out, **{"Ditto": as_it_is, "Ditto, made to run": right})


if __name__ == "__main__":
    main()
