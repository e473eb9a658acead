"""Facts about a run's clients that do not change with the round: data sizes, labels, speed, names, groups, drift."""

from dataclasses import dataclass

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.drift import Drift
from turnout.journal.codec import decode_counts, decode_floats, decode_texts, encode_counts, encode_floats, encode_texts

MOST_LABELS = 1 << 26  # largest number of clients times classes that is read; turnout writes fewer
TEXTS = ("client_names", "client_groups")
CLIENT_ARRAYS = (
    "sizes",
    "label_counts",
    "seconds_per_step",
    "drift",
    *TEXTS,
)  # columns of a run that refer to an array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """The clients of one run. Runs with the same data share one copy in the journal."""

    sizes: Ids  # number of training samples, by client
    label_counts: Ids | None = None  # (clients, classes); None: no classes, or too many to count
    seconds_per_step: Floats | None = None  # by client; None: the fleet has no clock, or its clock does not say
    client_names: tuple[str, ...] | None = None  # None: clients have numbers only
    client_groups: tuple[str, ...] | None = None  # a group for each client, such as its region
    drift: Drift | None = None  # how the data change with time; None: they do not

    def encoded(self) -> tuple[bytes | None, ...]:
        """Return the arrays as bytes, in the order of `CLIENT_ARRAYS`."""
        labels = None if self.label_counts is None else encode_counts(self.label_counts)
        texts = (encode_texts(self.client_names), encode_texts(self.client_groups))
        drift = None if self.drift is None else _encoded_drift(self.drift)
        return encode_counts(self.sizes), labels, encode_floats(self.seconds_per_step), drift, *texts

    @classmethod
    def decoded(
        cls,
        sizes: bytes,
        label_counts: bytes | None,
        seconds_per_step: bytes | None,
        drift: bytes | None,
        *texts: bytes | None,
    ) -> "ClientFacts":
        """Return the facts that `encoded` packed."""
        counts = decode_counts(sizes)
        clients = len(counts)
        decoded_texts = (None if text is None else decode_texts(text, clients) for text in texts)
        labels = None if label_counts is None else decode_counts(label_counts, MOST_LABELS).reshape(clients, -1)
        seconds = None if seconds_per_step is None else decode_floats(seconds_per_step, clients)
        by_column = dict(zip(TEXTS, decoded_texts, strict=True))
        drifting = None if drift is None else _decoded_drift(drift, clients)
        return cls(sizes=counts, label_counts=labels, seconds_per_step=seconds, drift=drifting, **by_column)


def _encoded_drift(drift: Drift) -> bytes:
    """Return the rounds of a time step, then the sizes and the concepts, client after client."""
    return encode_counts(np.concatenate([[drift.rounds_per_step], drift.sizes.ravel(), drift.concepts.ravel()]))


def _decoded_drift(blob: bytes, clients: int) -> Drift:
    rounds_per_step, *rest = decode_counts(blob, MOST_LABELS)
    if rounds_per_step < 1 or len(rest) < 4 * clients or len(rest) % (2 * clients):
        raise ValueError(f"{len(rest)} numbers are no time steps of {clients} clients")
    sizes, concepts = np.array(rest, dtype=np.int64).reshape(2, clients, -1)
    return Drift(sizes, concepts, int(rounds_per_step))
