"""What the checks of a round's answers found, and the tests that they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from turnout.array_types import Ids
from turnout.requests import Record

MOST_NOTES = 20  # told of in a record
MOST_EXAMPLES = 10**12


@dataclass(slots=True)
class Findings:
    """What was wrong with the answers of a round."""

    refused: dict[int, str] = field(default_factory=dict)  # client -> reason
    trained: set[int] = field(default_factory=set)  # those of them whose training was refused: the answer says why, too
    notes: list[str] = field(default_factory=list)
    clipped: int = 0

    def refuse(self, reasons: Mapping[int, str]) -> None:
        """Note whose training cannot be used."""
        self.refused |= reasons
        self.trained |= set(reasons)

    def with_notes(self, record: Record) -> Record:
        """Return the record with what was found besides the clients that it rejects."""
        if not (self.refused or self.notes or self.clipped):
            return record
        on_the_way = self.trained & (set(record.asked.tolist()) - set(record.answered.tolist()))
        recorded = on_the_way | set(record.rejected)  # an update under way is rejected in the round in which it returns
        others = [f"client {c}: {reason}" for c, reason in self.refused.items() if c not in recorded]
        notes = [*self.notes, *others]
        if len(notes) > MOST_NOTES:
            notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]
        metrics = {**record.metrics, "clipped": float(self.clipped)} if self.clipped else record.metrics
        return replace(record, events=(*record.events, *notes), metrics=metrics)


def is_like(rows: Any, shape: tuple[int, ...], model: Tensor) -> bool:
    """Return whether these are numbers of the model's type, in this shape."""
    return isinstance(rows, Tensor) and tuple(rows.shape) == shape and rows.dtype == model.dtype


def are_numbers(column: Any, count: int, kinds: str = "biuf") -> bool:
    """Return whether this is a column of so many numbers, of these kinds."""
    return isinstance(column, np.ndarray) and column.shape == (count,) and column.dtype.kind in kinds


def marked(clients: Ids, reason: str) -> dict[int, str]:
    """Return the same reason for each of these clients."""
    return dict.fromkeys(clients.tolist(), reason)
