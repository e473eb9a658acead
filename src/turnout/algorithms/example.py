"""The study file that shows an algorithm: a small one that compares it with FedAvg in a scenario it is made for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COMMON: dict[str, Any] = {
    "data": {
        "use": "digits",
        "clients": 20,
        "partition": {"use": "dirichlet", "concentration": 0.3, "min_size": 2, "top_up": True},
    },
    "model": {"use": "softmax"},
    "selection": {"use": "uniform", "cohort_size": 5},
    "local": {"use": "sgd", "lr": 0.1, "batch_size": 10, "epochs": 2},
}
BASELINE = "FedAvg"


@dataclass(frozen=True, slots=True)
class Example:
    """The name that people search for, and what differs from the common study."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of the algorithm
    scenario: Mapping[str, Any] = field(default_factory=dict)  # sections of the study, setting by setting

    def study(self, name: str) -> dict[str, Any]:
        """Return the study as plain values, with FedAvg as the first arm."""
        sections = {key: self._section(key) for key in {**COMMON, **self.scenario}}
        recipe = {"use": name, **self.settings} if self.settings else name
        baseline = [{"name": BASELINE, "recipe": "fedavg"}] if self.title != BASELINE else []
        arms = [*baseline, {"name": self.title, "recipe": recipe}]
        return {"name": f"try-{name}", "rounds": 30, "seeds": 3, **sections, "arm": arms}

    def _section(self, key: str) -> dict[str, Any]:
        """Return a section of the common study with what differs; another rule has none of the common settings."""
        common, own = COMMON.get(key, {}), self.scenario.get(key, {})
        return {**own} if own.get("use", common.get("use")) != common.get("use") else {**common, **own}
