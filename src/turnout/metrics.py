"""What a model is measured by: each metric says which values it takes and which of them are better.

`loss` is always measured. `accuracy` is measured where each sample's label is the index of a class and the model has
one output per class, whatever the loss is. Nothing is declared of a number that a rule reports: it can be compared, but
no value of it is called better, and it can be no target.
"""

from dataclasses import dataclass

from torch import Tensor

from turnout.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and what its values mean."""

    name: str
    higher_is_better: bool | None  # None: neither is declared to be
    is_share: bool = False  # between 0 and 1; shown as a percentage


METRICS = {
    metric.name: metric
    for metric in (
        Metric(name="loss", higher_is_better=False),
        Metric(name="accuracy", higher_is_better=True, is_share=True),
        Metric(name="benign_accuracy", higher_is_better=True, is_share=True),
    )
}
EVALUATED = ("loss", "accuracy")  # measured on the test set, in the rounds that `evaluate` says


_COSTS = (
    *("bytes", "bytes_down", "bytes_up", "gradient_evaluations", "probe_evaluations"),
    *("sim_seconds", "wall_seconds"),
)
RESERVED = frozenset(  # the columns that a journal's frame of rounds has besides metrics
    {
        *("arm", "seed", "round", "evaluated", "num_clients", "up", "asked", "answered", "events", "rejected"),
        *_COSTS,
        *(f"cumulative_{cost}" for cost in _COSTS),
    }
)
MOST_LETTERS = 200


def can_be_metric(name: object) -> bool:
    """Whether a journal can keep a number under this name."""
    return isinstance(name, str) and 0 < len(name) <= MOST_LETTERS and name.isprintable() and name not in RESERVED


def reported(metrics: dict[str, float]) -> dict[str, float]:
    """Return what rules report of a round; raise where a name is taken or cannot be kept."""
    for name in metrics:
        if not can_be_metric(name) or name in EVALUATED:
            raise ConfigError(
                f"A rule reports a number under the name {name!r:.60}, which is taken or no name of 1 to "
                f"{MOST_LETTERS} printable characters. Rename it in the metrics that the rule returns."
            )
    return metrics


def metric_named(name: str) -> Metric:
    """Return what is known of a metric."""
    return METRICS.get(name, Metric(name=name, higher_is_better=None))


def measurable(output: Tensor, label: Tensor, num_classes: int | None) -> tuple[str, ...]:
    """Return the metrics that a model's output for some samples, and their labels, allow.

    A single output for two classes may be a logit or a probability, and a sequence has many labels: of neither is an
    accuracy measured.
    """
    is_index = num_classes is not None and label.dim() == 1 and not label.is_floating_point()
    has_columns = output.dim() == 2 and output.shape[1] >= (num_classes or 1)
    return EVALUATED if is_index and has_columns else EVALUATED[:1]
