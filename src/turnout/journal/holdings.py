"""What a run's clients hold, and how fast they are: what a report needs to know of them beside the rounds."""

from dataclasses import dataclass

from turnout.journal.codec import decode_counts, decode_floats, encode_counts, encode_floats
from turnout.streams import Floats, Ids

HELD = ("sizes", "label_counts", "seconds_per_step")  # the columns of a run that name an array


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The clients of one run. Runs with the same data share one copy in the journal."""

    sizes: Ids  # training samples, by client
    label_counts: Ids | None = None  # (clients, classes); None: no classes, or too many to count
    seconds_per_step: Floats | None = None  # None: the fleet has no clock, or one that does not say

    def encoded(self) -> tuple[bytes, bytes | None, bytes | None]:
        """Return the arrays as bytes, in the order of `HELD`."""
        labels = None if self.label_counts is None else encode_counts(self.label_counts)
        return encode_counts(self.sizes), labels, encode_floats(self.seconds_per_step)

    @classmethod
    def decoded(cls, sizes: bytes, label_counts: bytes | None, seconds_per_step: bytes | None) -> "Holdings":
        """Return what `encoded` packed."""
        own = decode_counts(sizes)
        labels = None if label_counts is None else decode_counts(label_counts).reshape(len(own), -1)
        seconds = None if seconds_per_step is None else decode_floats(seconds_per_step)
        return cls(sizes=own, label_counts=labels, seconds_per_step=seconds)
