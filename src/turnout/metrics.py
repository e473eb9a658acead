"""Metrics of a model: their names, and whether higher or lower values are better.

`loss` is always measured. `accuracy` is measured if each sample's label is a class index and the model has one output
per class, whatever the loss is. A number that a rule reports has no declared direction: it can be compared, but neither
higher nor lower is better, and it cannot be a target.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from turnout.array_types import Floats
from turnout.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and the meaning of its values."""

    name: str  # column name in the journal
    higher_is_better: bool | None  # None if neither direction is better
    is_share: bool = False  # whether values are fractions in [0, 1], shown as percentages


METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="loss", higher_is_better=False),
        Metric(name="accuracy", higher_is_better=True, is_share=True),
        Metric(name="benign_accuracy", higher_is_better=True, is_share=True),
        Metric(name="own_loss", higher_is_better=False),
        Metric(name="own_accuracy", higher_is_better=True, is_share=True),
        Metric(name="appeal", higher_is_better=True, is_share=True),
        Metric(name="cohort_appeal", higher_is_better=True, is_share=True),
        Metric(name="alone_loss", higher_is_better=False),
        Metric(name="alone_accuracy", higher_is_better=True, is_share=True),
        Metric(name="preferred_accuracy", higher_is_better=True, is_share=True),
        Metric(name="personal_loss", higher_is_better=False),
        Metric(name="personal_accuracy", higher_is_better=True, is_share=True),
        Metric(name="mixture_loss", higher_is_better=False),
        Metric(name="mixture_accuracy", higher_is_better=True, is_share=True),
    )
}
EVALUATED = ("loss", "accuracy")  # measured in the rounds that `evaluate` selects

# what EVALUATED are measured of and on, as the journal says for each run
MEASURED_ON = "measured_on"
ON_TEST_SET = "the shared model on the test set"
ON_HOLDOUTS = "clients' own models, each on its client's hold-out"
OF_SHARED_LAYERS = "the shared layers with untrained ones in place of those that stay at clients, on the test set"


_COSTS = (
    *("bytes", "bytes_down", "bytes_up", "gradient_evaluations", "probe_evaluations"),
    *("sim_seconds", "wall_seconds"),
)
RESERVED = frozenset(  # columns of a journal's rounds frame that are not metrics
    {
        *("arm", "seed", "round", "evaluated", "num_clients", "up", "asked", "answered", "events", "rejected"),
        *_COSTS,
        *(f"cumulative_{cost}" for cost in _COSTS),
    }
)
MAX_NAME_LENGTH = 200


def means_of(values: Mapping[str, Floats]) -> dict[str, float]:
    """Return the mean over clients of each measure of their own models, such as "personal loss", as a metric."""
    return {name.replace(" ", "_"): float(np.nanmean(by_client)) for name, by_client in values.items()}


def can_be_metric(name: object) -> bool:
    """Whether a journal can store a metric of this name."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name not in RESERVED


def reported(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics that rules report for a round; raise ConfigError if a name is reserved or invalid."""
    for name in metrics:
        if not can_be_metric(name) or name in EVALUATED:
            raise ConfigError(
                f"A rule reports a metric named {name!r:.60}, which is reserved or not 1 to {MAX_NAME_LENGTH} "
                "printable characters. Rename it in the metrics that the rule returns."
            )
    return metrics


def metric_named(name: str) -> Metric:
    """Return the metric of this name; a metric of a rule has no better direction."""
    return METRICS.get(name, Metric(name=name, higher_is_better=None))


def measurable(output: Tensor, label: Tensor, num_classes: int | None) -> tuple[str, ...]:
    """Return the metrics that the shapes of a model's output and of the labels allow.

    There is no accuracy for a single output with two classes, which may be a logit or a probability, nor for one label
    per position of a sequence.
    """
    is_index = num_classes is not None and label.dim() == 1 and not label.is_floating_point()
    has_columns = output.dim() == 2 and output.shape[1] >= (num_classes or 1)
    return EVALUATED if is_index and has_columns else EVALUATED[:1]
