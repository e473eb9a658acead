"""Label counts of the clients, for availability rules that depend on a client's labels."""

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.protocols import View


def label_counts(view: View, rule: str, way_out: str) -> Ids:
    """Return the (clients, classes) table of label counts; raise ConfigError if the federation has none."""
    counts = view.population.label_counts
    if counts is None:
        raise ConfigError(
            f"{rule} needs the label counts of every client; this federation has none, "
            f"because its targets are numbers or its labels were not counted. {way_out}"
        )
    return np.asarray(counts)


def lowest_labels(counts: Ids) -> Ids:
    """Return the lowest label of each client; 0 for a client without samples."""
    return np.asarray(np.argmax(counts > 0, axis=1))


def dominant_labels(counts: Ids) -> Ids:
    """Return the most frequent label of each client; ties go to the lowest."""
    return np.asarray(np.argmax(counts, axis=1))
