"""Read single columns of a run's rounds: who took part, how it went, and how accurate the model was on each client."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from turnout.array_types import Floats
from turnout.journal.codec import decode_floats
from turnout.journal.journal import Journal

# what is measured on each client's own hold-out; and which model it trained in the round, −1 for a client not asked
ByClient = Literal["client_accuracy", "client_loss", "assignment"]
OF_RUN = "FROM round JOIN run ON run.id = round.run WHERE arm = ? AND seed = ? AND round <= ?"


class RoundClients(NamedTuple):
    """The clients of one round, still encoded: all rounds of a run together may not fit in memory."""

    round: int
    num_clients: int
    num_asked: int
    up: bytes  # for `codec.decode_mask`
    members: bytes | None  # for `codec.decode_mask`; None: everyone belongs
    asked: bytes | None  # for `codec.decode_clients`; None: no client was asked
    counted: bytes | None  # for `codec.decode_mask`; None: everyone is in the objective
    kept: bytes | None  # for `codec.decode_mask`; None: the filter let everyone through
    reused: bytes | None  # for `codec.decode_floats`, by client; None: the step used no stored update


def read_clients(journal: Journal, arm: str, seed: int, last_round: int) -> Iterator[RoundClients]:
    """Yield the clients of each round of a run up to the last one, in order."""
    columns = "round, num_clients, asked_count, up, members, clients, counted, kept, reused"
    query = f"SELECT {columns} {OF_RUN} ORDER BY round"
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


def read_by_client(
    journal: Journal, column: ByClient, arm: str, seed: int, last_round: int
) -> Iterator[tuple[int, Floats]]:
    """Yield (round, a number by client) of each round up to the last one that has this column, in order."""
    query = f"SELECT round, {column}, num_clients {OF_RUN} AND {column} IS NOT NULL ORDER BY round"
    for round, blob, num_clients in journal.read(query, (arm, seed, last_round)):
        yield round, decode_floats(blob, num_clients)
