"""Private: clip every change to one length, add them up, divide by a fixed number, and add Gaussian noise.

Intuition: no client can move the sum by more than C, and the noise is as large as what any one of them could do.

    Δ̃_i = min(1, C/‖Δ_i‖)·Δ_i
    u   = (1/K) (Σ_{i∈S} Δ̃_i + z·C·ξ),    ξ ~ N(0, I) keyed by (seed, "privacy", arm, round)

Every client counts alike and K never depends on who answered: with weights n_i, or a mean over those that came, one
client would also move the others' share and the sum would be more sensitive than C. The metric epsilon is ε so far,
for the δ given, against one who sees every model of the run. It compares runs in which one client sends its changes or
sends 0 whenever it is asked (`none`, `poisson`), or sends any others (`fixed`); who is up is the same in both, and no
draw looks at what clients send. What the accounting gains from a secret draw is only what `sampling` says; a study in
which that does not hold is refused. Noise is added in every round in which somebody is up: a model that stands still
would say that nobody could be used. With z = 0 there is no ε.

Reduces to: FedAvg with weighting = "mean" when z = 0, C = ∞ and K clients answer.
Differs from the paper: weights are equal, not capped by data size; the bound is on the whole change, not per layer.
Reference: McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.accounting import Sampling, epsilon, spent
from turnout.aggregation.norm_clipping import clip_factors
from turnout.array_types import Floats
from turnout.errors import ConfigError
from turnout.optional import limits_answers
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Facts, Rows
from turnout.settings import Clients, Range, rule

LEAST_NOISE, MOST_NOISE = 0.01, 1000.0  # in units of C: the accountant is exact to rounding in between
DRAWN_BY = {"none": ("Uniform", "Poisson"), "fixed": ("Uniform",), "poisson": ("Poisson",)}


def bounded_mean(delta: Tensor, clip_norm: float, cohort_size: int) -> tuple[Tensor, Floats]:
    """Return (1/K) Σ Δ̃_i and the rows' coefficients; one row more or less moves it by at most C/K."""
    norms = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).cpu().numpy()
    coefficients = clip_factors(norms, clip_norm) / cohort_size
    return as_tensor(coefficients, delta) @ delta, coefficients


@rule("aggregation")
class Private:
    """Client-level differential privacy."""

    is_weighted_sum: ClassVar[bool] = False  # there is noise in it
    clip_norm: Annotated[float, Range(above=0, ceiling=math.inf)]  # C
    noise_multiplier: Annotated[float, Range(least=0, ceiling=MOST_NOISE)]  # z: the noise on the sum, in units of C
    cohort_size: Clients  # K: how many are asked, or expected; the sum is divided by it whoever answers
    delta: Annotated[float, Range(above=0, below=1)] = 1e-5  # δ
    sampling: Sampling = "none"  # the secret draw that ε gains from: none, uniform of K ("fixed"), or poisson

    def __post_init__(self) -> None:
        if 0 < self.noise_multiplier < LEAST_NOISE:
            raise ConfigError(
                f"Private needs noise_multiplier = 0, or {LEAST_NOISE} and more: with less, ε is beyond what can be "
                f"counted; got {self.noise_multiplier}. Change aggregation.noise_multiplier."
            )
        if self.noise_multiplier > 0 and self.clip_norm == float("inf"):
            raise ConfigError(
                "Private with noise needs a finite clip_norm: noise is measured in it. Change aggregation.clip_norm."
            )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether noise is added where nobody answered, too: a model that stands still would say so."""
        return anyone_up and self.noise_multiplier > 0

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why the guarantee would not hold."""
        yield from self._objections_to_sampling(plan.selection)
        clock = plan.fleet.clock
        if self.sampling != "fixed" and limits_answers(clock) and clock.displaces:
            yield (
                "with over-selection a client that is in time displaces another, and the sum moves by up to 2C, not C. "
                'Set fleet.clock.over_selection = 1, or aggregation.sampling = "fixed", which counts 2C.'
            )
        if type(plan.filtering).__name__ != "Everyone":
            yield "a filter looks at data before the cohort is drawn, outside the guarantee. Leave filtering out."
        if plan.local.client_state is not None:
            yield 'control variates carry unclipped changes from round to round. Set local.control = "none".'
        if hasattr(getattr(plan.local, "effort", None), "observe"):
            yield "an effort that follows training losses passes them on without noise. Set local.steps instead."
        if plan.server.wants_norms:
            yield f'{type(plan.server).__name__} reads unclipped lengths. Set server.use = "sgd".'
        if plan.asynchrony is not None:
            yield "answers to older models are not what the accounting assumes. Leave asynchrony out."
        if plan.assist is not None or plan.fleet.membership is not None:
            yield "server rounds, arrivals and departures are not accounted for. Leave assist and membership out."
        if getattr(plan.attack, "colludes", False):
            yield "attackers who see others' changes pass them on, each up to C. Leave attack out, or set another."

    def _objections_to_sampling(self, selection: Any) -> Iterator[str]:
        rule, known = type(selection).__name__, DRAWN_BY[self.sampling]
        if rule not in known or getattr(selection, "replacement", False):
            drawn = " or ".join(name.lower() for name in known)
            yield (
                f'sampling = "{self.sampling}" needs cohorts drawn without a look at data and without replacement; '
                f"got {rule}. Set selection.use to {drawn}, without replacement."
            )
        elif self.sampling == "fixed" and selection.cohort_size is None:
            yield 'with everyone asked, nothing is drawn. Set selection.cohort_size, or aggregation.sampling = "none".'
        elif selection.cohort_size not in (None, self.cohort_size):
            yield (
                f"the sum is divided by cohort_size = {self.cohort_size} and {selection.cohort_size} are asked. "
                f"Set aggregation.cohort_size to {selection.cohort_size}."
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the noisy sum over K, and what has been spent so far."""
        if view.buffers is not None:
            raise ConfigError(
                "Private covers parameters only; this model has buffers (running statistics), which are averaged "
                "without clipping or noise. Change model to one without them."
            )
        direction, coefficients = bounded_mean(rows.delta, self.clip_norm, self.cohort_size)
        metrics = {"clipped": float((coefficients < 1 / self.cohort_size).sum())}
        if self.noise_multiplier == 0:
            return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
        std = self.noise_multiplier * self.clip_norm / self.cohort_size
        noise = view.streams.arm_generator("privacy", view.round).standard_normal(direction.numel())
        rate = self._rate(rows.facts, memory)
        so_far = memory.get("divergences", 0.0) + spent(self.sampling, self.noise_multiplier, rate)
        metrics |= {"epsilon": epsilon(self.sampling, so_far, self.delta), "noise_std": std}
        return Combined(
            direction=direction + as_tensor(noise * std, direction),
            coefficients=coefficients,
            memory={"divergences": so_far, "rate": rate},
            metrics=metrics,
        )

    def _rate(self, facts: Facts, memory: Memory) -> float:
        """Return q; where nobody answered that of the coins, if it was seen, else 1, the most that can be lost."""
        if self.sampling == "none" or facts.inclusion_prob is None:
            return 1.0
        if len(facts) == 0:
            return float(memory.get("rate", 1.0)) if self.sampling == "poisson" else 1.0
        return float(np.max(facts.inclusion_prob))
