"""Facts about a run's clients that do not change with the round: data sizes, label counts, speed, names, groups."""

from dataclasses import dataclass

from turnout.array_types import Floats, Ids
from turnout.journal.codec import decode_counts, decode_floats, decode_texts, encode_counts, encode_floats, encode_texts

MOST_LABELS = 1 << 26  # largest number of clients times classes that is read; turnout writes fewer
TEXTS = ("client_names", "client_groups")
CLIENT_ARRAYS = ("sizes", "label_counts", "seconds_per_step", *TEXTS)  # columns of a run that refer to an array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """The clients of one run. Runs with the same data share one copy in the journal."""

    sizes: Ids  # number of training samples, by client
    label_counts: Ids | None = None  # (clients, classes); None: no classes, or too many to count
    seconds_per_step: Floats | None = None  # by client; None: the fleet has no clock, or its clock does not say
    client_names: tuple[str, ...] | None = None  # None: clients have numbers only
    client_groups: tuple[str, ...] | None = None  # a group for each client, such as its region

    def encoded(self) -> tuple[bytes | None, ...]:
        """Return the arrays as bytes, in the order of `CLIENT_ARRAYS`."""
        labels = None if self.label_counts is None else encode_counts(self.label_counts)
        texts = (encode_texts(self.client_names), encode_texts(self.client_groups))
        return encode_counts(self.sizes), labels, encode_floats(self.seconds_per_step), *texts

    @classmethod
    def decoded(
        cls, sizes: bytes, label_counts: bytes | None, seconds_per_step: bytes | None, *texts: bytes | None
    ) -> "ClientFacts":
        """Return the facts that `encoded` packed."""
        counts = decode_counts(sizes)
        clients = len(counts)
        decoded_texts = (None if text is None else decode_texts(text, clients) for text in texts)
        labels = None if label_counts is None else decode_counts(label_counts, MOST_LABELS).reshape(clients, -1)
        seconds = None if seconds_per_step is None else decode_floats(seconds_per_step, clients)
        by_column = dict(zip(TEXTS, decoded_texts, strict=True))
        return cls(sizes=counts, label_counts=labels, seconds_per_step=seconds, **by_column)
