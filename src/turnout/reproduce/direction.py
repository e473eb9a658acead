"""How far the direction of a few clients is from that of all: everyone trains, and a rule gets to see K of them."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from turnout.aggregation import ClusterFedVARP, FedVARP
from turnout.errors import ConfigError
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Rows
from turnout.selection import Uniform
from turnout.settings import Clients, When, rule


@rule("aggregation")
class Sampled:
    """FedAvg, FedVARP or ClusterFedVARP on K of the clients that answered, measured against the mean of them all.

        direction_error = ‖v − (1/N) Σ_i Δ_i‖²        direction_size = ‖(1/N) Σ_i Δ_i‖²

    The K clients are those that Uniform would have asked, so the run is the rule's own run with that selection; only
    its cost is that of asking everyone.
    """

    is_weighted_sum: ClassVar[bool] = False
    cohort_size: Clients  # K
    remembers: Literal["nothing", "clients", "clusters"] = "nothing"  # FedAvg, FedVARP, ClusterFedVARP
    num_clusters: Clients | None = None  # Q
    clusters: Annotated[Literal["random", "labels"], When(remembers="clusters")] = "random"

    def __post_init__(self) -> None:
        if (self.remembers == "clusters") != (self.num_clusters is not None):
            raise ConfigError(
                f'Sampled needs num_clusters with remembers = "clusters" and not otherwise; got {self.num_clusters} '
                f"with {self.remembers!r}. Change aggregation.num_clusters.",
                setting="aggregation.num_clusters",
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the rule's direction from K rows, and how far it is from the mean of all."""
        chosen = Uniform(cohort_size=self.cohort_size).choose(rows.facts.clients, view, ask)
        mask = np.isin(rows.facts.clients, chosen.clients)
        facts = replace(rows.facts.keep(mask), inclusion_prob=chosen.inclusion_prob)
        found = self._rule(Rows(facts, rows.delta[torch.from_numpy(mask)]), memory, view, ask)
        everyone = rows.delta.mean(0)
        coefficients = np.zeros(len(rows.facts))
        coefficients[mask] = found.coefficients
        errors = {
            "direction_error": float((found.direction - everyone).double().square().sum()),
            "direction_size": float(everyone.double().square().sum()),
        }
        return replace(found, coefficients=coefficients, metrics=found.metrics | errors)

    def _rule(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        if self.num_clusters is not None:
            rule = ClusterFedVARP(num_clusters=self.num_clusters, clusters=self.clusters)
            return rule.combine(rows, memory, view, ask)
        if self.remembers == "clients":
            return FedVARP().combine(rows, memory, view, ask)
        weights = rows.facts.multiplicity / rows.facts.num_draws
        return Combined(direction=as_tensor(weights, rows.delta) @ rows.delta, coefficients=weights)
