"""Read single columns of a run's rounds: who took part, how it went, and how accurate the model was on each client."""

from collections.abc import Iterator
from typing import NamedTuple

from turnout.array_types import Floats
from turnout.journal.codec import decode_floats
from turnout.journal.journal import Journal

OF_RUN = "FROM round JOIN run ON run.id = round.run WHERE arm = ? AND seed = ? AND round <= ?"


class RoundClients(NamedTuple):
    """The clients of one round, still encoded: all rounds of a run together may not fit in memory."""

    round: int
    num_clients: int
    num_asked: int
    up: bytes  # for `codec.decode_mask`
    members: bytes | None  # for `codec.decode_mask`; None: everyone belongs
    asked: bytes | None  # for `codec.decode_clients`; None: no client was asked


def read_clients(journal: Journal, arm: str, seed: int, last_round: int) -> Iterator[RoundClients]:
    """Yield the clients of each round of a run up to the last one, in order."""
    query = f"SELECT round, num_clients, asked_count, up, members, clients {OF_RUN} ORDER BY round"
    return (RoundClients(*row) for row in journal.read(query, (arm, seed, last_round)))


class RoundSummary(NamedTuple):
    """One round in a line."""

    round: int
    num_asked: int
    num_answered: int
    loss: float | None  # None: not measured in this round
    accuracy: float | None


def read_summaries(journal: Journal, after: int) -> list[RoundSummary]:
    """Return the rounds after this one, in order; of a journal with one run."""
    query = "SELECT round, asked_count, answered_count, loss, accuracy FROM round WHERE round > ? ORDER BY round"
    return [RoundSummary(*row) for row in journal.read(query, (after,))]


def read_client_accuracy(journal: Journal, arm: str, seed: int, last_round: int) -> Iterator[tuple[int, Floats]]:
    """Yield (round, accuracy by client) of each round up to the last one that evaluated every client, in order."""
    query = f"SELECT round, client_accuracy, num_clients {OF_RUN} AND client_accuracy IS NOT NULL ORDER BY round"
    for round, blob, num_clients in journal.read(query, (arm, seed, last_round)):
        yield round, decode_floats(blob, num_clients)
