"""fluke: shared and personal models of its algorithms on given networks. Arguments: what is given, where to write."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.apfl import APFL
from fluke.algorithms.ditto import Ditto
from fluke.algorithms.fedper import FedPer
from fluke.algorithms.fedrep import FedRep
from fluke.algorithms.pfedme import PFedMe
from fluke.client import Client
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.nets import EncoderHeadNet
from fluke.utils import FederationObserver

from benchmarks.peers.networks import (
    BATCH_SIZE,
    CLASSES,
    INNER_LR,
    INNER_STEPS,
    LR,
    MIXING,
    PULL,
    SERVER_LR,
    STRENGTH,
    EncoderHead,
    Network,
    Purpose,
    flat,
)

NEVER = 10**6
PersonalModel = Callable[[Network, CentralizedFL, Client], np.ndarray]


class GivenNet(EncoderHeadNet):
    """The given network, in fluke's words; fluke makes it by its name, one for each client."""

    def __init__(self) -> None:
        given = EncoderHead(Network.load(Path(sys.argv[1])).start)
        super().__init__(given.encoder, given.head)


class GivenBatches(FastDataLoader):
    """Hands out the given mini-batches: each pass over the loader is the next one of the client."""

    def __init__(self, given: Network, client: int, purposes: Sequence[Purpose]) -> None:
        super().__init__(*given.samples(client), num_labels=CLASSES, batch_size=BATCH_SIZE)
        self.passes = given.passes(client, purposes)

    def __iter__(self):
        """Begin the next pass."""
        return iter(next(self.passes))


class GivenSplit:
    """Hands fluke the given clients."""

    def __init__(self, given: Network, purposes: Sequence[Purpose]) -> None:
        self.given, self.purposes = given, purposes

    def assign(self, num_clients: int, batch_size: int):
        """Return each client's training and test loaders, and the server's."""
        loaders = [GivenBatches(self.given, client, self.purposes) for client in range(num_clients)]
        return (loaders, [None] * num_clients), None


class CheckpointStore(FederationObserver):
    """Keeps the server's model and that of each client at the end of each round."""

    def __init__(self, given: Network, run: CentralizedFL, personal: PersonalModel) -> None:
        self.given, self.run, self.personal, self.path = given, run, personal, []

    def end_round(self, round: int) -> None:
        """Keep copies."""
        size = len(self.given.start)
        shared = flat(self.run.server.model)
        if len(shared) < size:  # the encoder alone
            shared = np.concatenate([shared, self.given.start[len(shared) :]])
        self.path.append(np.stack([shared, *(self.personal(self.given, self.run, c) for c in self.run.clients)]))


def own_model(given: Network, run: CentralizedFL, client: Client) -> np.ndarray:
    """Return the model that a client keeps beside the shared one."""
    return flat(client.personalized_model)


def trained_model(given: Network, run: CentralizedFL, client: Client) -> np.ndarray:
    """Return the model as the client has trained it; x⁰ before that."""
    return given.start if client.model is None else flat(client.model)


def own_head(given: Network, run: CentralizedFL, client: Client) -> np.ndarray:
    """Return the shared encoder with the client's own head."""
    return np.concatenate([flat(run.server.model), flat(client.model.get_local())])


def algorithms() -> Iterator[tuple]:
    """Yield each algorithm's name, class, settings of a client and of the server, passes and personal model."""
    inner = {"optimizer": DDict(lr=INNER_LR, lamda=PULL, mu=0.0), "k": INNER_STEPS}
    net = {"model": "benchmarks.peers.personal_fluke.GivenNet", "tau": 1}  # tau: passes of the second phase
    yield "Ditto, after", Ditto, net | {"lam": STRENGTH}, {}, ("shared", "own"), own_model
    yield "Ditto, together", Ditto, net | {"lam": STRENGTH}, {}, ("shared", "shared"), own_model
    yield "APFL", APFL, net | {"lam": MIXING}, {"tau": 1}, ("shared",), own_model
    yield "pFedMe", PFedMe, inner, {"beta": SERVER_LR}, ("shared",), trained_model
    yield "FedPer", FedPer, net, {}, ("shared",), own_head
    yield "FedRep", FedRep, net, {}, ("own", "shared"), own_head


def path_of(
    given: Network,
    algorithm: type[CentralizedFL],
    client: Mapping[str, object],
    server: Mapping[str, object],
    purposes: Sequence[Purpose],
    personal: PersonalModel,
) -> np.ndarray:
    """Run one algorithm and return the shared model and every client's own after each round."""
    common = {"optimizer": DDict(name="SGD", lr=LR), "scheduler": DDict(gamma=1, step_size=NEVER)}
    common |= {"batch_size": BATCH_SIZE, "local_epochs": 1, "loss": "CrossEntropyLoss"}
    net = GivenNet()
    shared = net.encoder if personal is own_head else net
    settings = DDict(client=DDict(**common | client), server=DDict(weighted=True, **server), model=shared)
    run = algorithm(len(given.sizes), GivenSplit(given, purposes), settings)
    turns = iter(given.cohorts)
    run.server.get_eligible_clients = lambda _: [run.server.clients[client] for client in next(turns)]
    keeper = CheckpointStore(given, run, personal)
    run.set_callbacks(keeper)
    run.run(n_rounds=len(given.cohorts), eligible_perc=0.5, finalize=False)
    return np.stack(keeper.path)


def main() -> None:
    given, out = Network.load(Path(sys.argv[1])), Path(sys.argv[2])
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    env.set_evaluator(ClassificationEval(eval_every=NEVER, n_classes=CLASSES))
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    np.savez(out, **{name: path_of(given, *how) for name, *how in algorithms()})


if __name__ == "__main__":
    main()
