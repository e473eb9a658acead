"""The error of the direction of K clients against that of all: every client trains, and a rule sees K updates."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from turnout.aggregation import ClusterFedVARP, FedVARP
from turnout.errors import ConfigError
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows, as_tensor
from turnout.selection import Uniform
from turnout.settings import Clients, When, rule


@rule("aggregation")
class Sampled:
    """FedAvg, FedVARP or ClusterFedVARP on K of the updates, compared with the mean of all updates.

        direction_error = ‖v − (1/N) Σ_i Δ_i‖²        direction_size = ‖(1/N) Σ_i Δ_i‖²

    The K clients are those that Uniform would have selected, so the run is the rule's run with that selection; its
    cost is that of selecting every client.
    """

    is_weighted_sum: ClassVar[bool] = False
    cohort_size: Clients  # number of clients K that the rule sees, 1 or more
    remembers: Literal["nothing", "clients", "clusters"] = "nothing"  # what is stored: FedAvg, FedVARP, ClusterFedVARP
    num_clusters: Clients | None = None  # number of clusters Q, 1 or more; only with remembers = "clusters"
    clusters: Annotated[Literal["random", "labels"], When(remembers="clusters")] = "random"  # how clients are clustered

    def __post_init__(self) -> None:
        if (self.remembers == "clusters") != (self.num_clusters is not None):
            raise ConfigError(
                f'Sampled needs num_clusters with remembers = "clusters" and not otherwise; got {self.num_clusters} '
                f"with {self.remembers!r}. Change aggregation.num_clusters.",
                setting="aggregation.num_clusters",
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the rule's direction from K rows, and its distance from the mean of all rows."""
        chosen = Uniform(cohort_size=self.cohort_size).choose(rows.facts.clients, view, ask)
        mask = np.isin(rows.facts.clients, chosen.clients)
        facts = replace(rows.facts.keep(mask), inclusion_prob=chosen.inclusion_prob)
        combined = self._rule(Rows(facts, rows.delta[torch.from_numpy(mask)]), memory, view, ask)
        everyone = rows.delta.mean(0)
        coefficients = np.zeros(len(rows.facts))
        coefficients[mask] = combined.coefficients
        errors = {
            "direction_error": float((combined.direction - everyone).double().square().sum()),
            "direction_size": float(everyone.double().square().sum()),
        }
        return replace(combined, coefficients=coefficients, metrics=combined.metrics | errors)

    def _rule(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        if self.num_clusters is not None:
            rule = ClusterFedVARP(num_clusters=self.num_clusters, clusters=self.clusters)
            return rule.combine(rows, memory, view, ask)
        if self.remembers == "clients":
            return FedVARP().combine(rows, memory, view, ask)
        weights = rows.facts.multiplicity / rows.facts.num_draws
        return Combined(direction=as_tensor(weights, rows.delta) @ rows.delta, coefficients=weights)
