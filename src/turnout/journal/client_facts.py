"""What a run's clients hold, and how fast they are: what a report needs to know of them beside the rounds."""

from dataclasses import dataclass

from turnout.array_types import Floats, Ids
from turnout.journal.codec import decode_counts, decode_floats, decode_texts, encode_counts, encode_floats, encode_texts

MOST_LABELS = 1 << 26  # clients times classes: those of a journal that turnout writes are fewer
TEXTS = ("client_names", "client_groups")
HELD = ("sizes", "label_counts", "seconds_per_step", *TEXTS)  # the columns of a run that name an array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """The clients of one run. Runs with the same data share one copy in the journal."""

    sizes: Ids  # training samples, by client
    label_counts: Ids | None = None  # (clients, classes); None: no classes, or too many to count
    seconds_per_step: Floats | None = None  # None: the fleet has no clock, or one that does not say
    client_names: tuple[str, ...] | None = None  # None: clients have numbers
    client_groups: tuple[str, ...] | None = None  # a label of each client, such as its region

    def encoded(self) -> tuple[bytes | None, ...]:
        """Return the arrays as bytes, in the order of `HELD`."""
        labels = None if self.label_counts is None else encode_counts(self.label_counts)
        texts = (encode_texts(self.client_names), encode_texts(self.client_groups))
        return encode_counts(self.sizes), labels, encode_floats(self.seconds_per_step), *texts

    @classmethod
    def decoded(
        cls, sizes: bytes, label_counts: bytes | None, seconds_per_step: bytes | None, *texts: bytes | None
    ) -> "ClientFacts":
        """Return what `encoded` packed."""
        own = decode_counts(sizes)
        named = (None if text is None else decode_texts(text, len(own)) for text in texts)
        labels = None if label_counts is None else decode_counts(label_counts, MOST_LABELS).reshape(len(own), -1)
        seconds = None if seconds_per_step is None else decode_floats(seconds_per_step, len(own))
        return cls(sizes=own, label_counts=labels, seconds_per_step=seconds, **dict(zip(TEXTS, named, strict=True)))
