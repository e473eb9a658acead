"""The weights of groups of clients: by main label, data size, availability, device speed, and the data's own groups."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from turnout.analysis.audit.weights import Weights
from turnout.array_types import Floats, Ids
from turnout.journal import ClientFacts

QUARTERS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
MOST_GROUPS = 20  # by label or by name; with more, a table says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some clients, and their weight together."""

    by: str
    name: str
    clients: int
    asked: float  # Σ p_i
    effective: float  # Σ p̃_i


def weights_of_groups(weights: Weights, facts: ClientFacts) -> tuple[Group, ...]:
    """Return the weight of each group of clients that the journal lets us form."""
    return tuple(
        Group(
            by=by,
            name=name,
            clients=int((numbers == place).sum()),
            asked=float(weights.asked[numbers == place].sum()),
            effective=float(weights.effective[numbers == place].sum()),
        )
        for by, names, numbers in _groupings(weights, facts)
        for place, name in enumerate(names)
        if (numbers == place).any()
    )


def _groupings(weights: Weights, facts: ClientFacts) -> Iterator[tuple[str, tuple[str, ...], Ids]]:
    """Yield (what clients are grouped by, names of the groups, group of each client)."""
    if facts.client_groups is not None and 1 < len(set(facts.client_groups)) <= MOST_GROUPS:
        names = tuple(dict.fromkeys(facts.client_groups))
        yield "group", names, np.array([names.index(name) for name in facts.client_groups])
    if facts.label_counts is not None and 1 < facts.label_counts.shape[1] <= MOST_GROUPS:
        names = tuple(f"label {label}" for label in range(facts.label_counts.shape[1]))
        yield "main label", names, np.asarray(facts.label_counts.argmax(1))
    values: dict[str, Floats] = {
        "data size": facts.sizes.astype(np.float64),
        "availability": weights.times_up / weights.rounds,
    }
    if facts.seconds_per_step is not None:
        values["device speed"] = 1 / np.maximum(facts.seconds_per_step, np.finfo(float).tiny)
    for by, numbers in values.items():
        if len(np.unique(numbers)) > 1:
            yield by, QUARTERS, quarter_of(numbers)


def quarter_of(values: Floats) -> Ids:
    """Return the quarter of each value, 0 to 3; equal values are in one quarter."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values, side="left")
    return np.minimum(4 * below // len(values), 3).astype(np.int64)
