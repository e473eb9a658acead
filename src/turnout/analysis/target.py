"""A target: the value of a metric up to which costs are counted. It changes no run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from turnout.errors import ConfigError
from turnout.metrics import metric_named

FORM = 'Write target = { accuracy = 0.80 } in a study file, target={"accuracy": 0.8} in Python.'


@dataclass(frozen=True, slots=True)
class Target:
    """The value of a metric that arms are to reach."""

    metric: str
    value: float

    def __post_init__(self) -> None:
        untyped: Any = self
        metric, value = untyped.metric, untyped.value
        if not isinstance(metric, str) or isinstance(value, bool) or not isinstance(value, Real):
            raise ConfigError(f"A target is a metric and a number; got {metric!r:.40}: {value!r:.40}. {FORM}")
        try:
            object.__setattr__(self, "value", float(value))
        except OverflowError:
            object.__setattr__(self, "value", math.inf)
        if metric_named(self.metric).is_share and not 0 < self.value <= 1:
            example = f"{self.value / 100:.2f}" if 1 < self.value <= 100 else "0.80"
            raise ConfigError(
                f"The target for {self.metric} must lie in (0, 1]; got {self.value:g}: {self.metric} is a share "
                f"between 0 and 1; write {example}. Change target.",
                setting="target",
            )
        if not math.isfinite(self.value):
            raise ConfigError(
                f"The target for {self.metric} must be finite; got {self.value}. Change target.", setting="target"
            )

    def as_dict(self) -> dict[str, float]:
        """Return the target in the form of a study file."""
        return {self.metric: self.value}


def target_of(setting: Any) -> Target | None:
    """Return the target of a study, a study file or a journal; None if it has none."""
    if setting is None or isinstance(setting, Target):
        return setting
    if not isinstance(setting, Mapping):
        raise ConfigError(f"A target names its metric; got {setting!r:.60}. {FORM}")
    if len(setting) != 1:
        raise ConfigError(f"A target has exactly one metric; got {len(setting)}. {FORM}")
    ((metric, value),) = setting.items()
    return Target(metric, value)


def parse_target(text: str) -> Target:
    """Return the target that --target writes as METRIC=VALUE."""
    metric, separator, value = text.partition("=")
    try:
        return Target(metric.strip(), float(value))
    except ValueError:
        needs = "a number" if separator else "its metric"

        raise ConfigError(f"--target needs {needs}; got {text!r:.60}. Write --target accuracy=0.85.") from None
