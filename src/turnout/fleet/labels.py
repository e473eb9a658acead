"""What clients hold, by label: for processes in which who is up depends on what they hold."""

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.protocols import View


def label_counts(view: View, rule: str, way_out: str) -> Ids:
    """Return the (clients, classes) table of label counts; a federation without one is refused."""
    counts = view.population.label_counts
    if counts is None:
        raise ConfigError(
            f"{rule} needs the label counts of every client; this federation has none, "
            f"because its targets are numbers or its labels were not counted. {way_out}"
        )
    return np.asarray(counts)


def lowest_labels(counts: Ids) -> Ids:
    """Return the lowest label each client holds; 0 for a client that holds nothing."""
    return np.asarray(np.argmax(counts > 0, axis=1))


def dominant_labels(counts: Ids) -> Ids:
    """Return the label each client holds most of; ties go to the lowest."""
    return np.asarray(np.argmax(counts, axis=1))
