"""Private: differential privacy by clipping: clip every update, sum, divide by a fixed number, and add Gaussian noise.

Intuition: no client can change the sum by more than C, and the noise is as large as that change.

    Δ̃_i = min(1, C/‖Δ_i‖)·Δ_i
    u   = (1/K) (Σ_{i∈S} Δ̃_i + z·C·ξ),    ξ ~ N(0, I) keyed by (seed, "privacy", arm, round)

Every client has the same weight, and K does not depend on which clients return an update. With weights n_i, or with a
mean over the returned updates, one client would also change the weights of the others, and the sensitivity of the sum
would exceed C. The metric epsilon is ε so far, for the given δ, against an adversary that sees every model of the run.
It compares two runs: in one a client sends its updates; in the other it sends 0 whenever it is selected (`none`,
`poisson`) or sends any other updates (`fixed`). Availability is the same in both runs, and sampling does not depend on
what clients send. `sampling` states which secret sampling the accounting may assume; a study that does not sample in
this way is rejected. Noise is added in every round with an available client, because an unchanged model would reveal
that no update was usable. With z = 0 there is no ε.

Reduces to: FedAvg with weighting = "mean" when z = 0, C = ∞ and K clients return an update.
Differs from the paper: weights are equal, not capped by data size; the norm of the whole update is clipped, not the
norm of each layer.
Reference: McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963.
"""

import math
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.accounting import Sampling, epsilon, round_divergences
from turnout.aggregation.norm_clipping import clip_factors
from turnout.array_types import Floats
from turnout.errors import ConfigError
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Facts, Rows, as_tensor
from turnout.settings import Clients, Range, rule
from turnout.traits import Privacy

LEAST_NOISE, MOST_NOISE = 0.01, 1000.0  # in units of C; in this range the accountant is exact up to rounding
MOST_CLIP_NORM = 1e12  # with noise: beyond it the noise alone is larger than any model's numbers


def bounded_mean(delta: Tensor, clip_norm: float, cohort_size: int) -> tuple[Tensor, Floats]:
    """Return (1/K) Σ Δ̃_i and the coefficients; adding or removing one update changes the mean by at most C/K."""
    norms = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).cpu().numpy()
    coefficients = clip_factors(norms, clip_norm) / cohort_size
    return as_tensor(coefficients, delta) @ delta, coefficients


@rule("aggregation")
class Private:
    """Client-level differential privacy."""

    is_weighted_sum: ClassVar[bool] = False  # the direction contains noise
    # largest allowed update norm C, greater than 0; the median update norm without privacy is a usual start
    clip_norm: Annotated[float, Range(above=0, ceiling=math.inf)]
    # noise multiplier z: the standard deviation of the noise on the sum in units of C; 0 is no privacy, 0.5 to 2 is
    # usual
    noise_multiplier: Annotated[float, Range(least=0, ceiling=MOST_NOISE)]
    # divisor K of the sum, 1 or more: the number of clients selected per round, or its expectation
    cohort_size: Clients
    # δ of the guarantee (ε, δ), between 0 and 1; less than 1 / number of clients is usual
    delta: Annotated[float, Range(above=0, below=1)] = 1e-5
    # secret client sampling that reduces ε: "none" assumes none, "fixed" assumes K clients uniformly, "poisson"
    # assumes an independent draw per client; must match the selection rule
    sampling: Sampling = "none"

    def __post_init__(self) -> None:
        if 0 < self.noise_multiplier < LEAST_NOISE:
            raise ConfigError(
                f"Private needs noise_multiplier = 0 or >= {LEAST_NOISE}, because ε cannot be computed for less noise; "
                f"got {self.noise_multiplier}. Change aggregation.noise_multiplier.",
                setting="aggregation.noise_multiplier",
            )
        if self.noise_multiplier > 0 and MOST_CLIP_NORM < self.clip_norm < float("inf"):
            raise ConfigError(
                f"Private with noise needs clip_norm <= {MOST_CLIP_NORM:g}, or the noise drowns every model; got "
                f"{self.clip_norm:g}. Change aggregation.clip_norm to the norm of a usual update.",
                setting="aggregation.clip_norm",
            )
        if self.noise_multiplier > 0 and self.clip_norm == float("inf"):
            raise ConfigError(
                "Private with noise needs a finite clip_norm, the unit of the noise; got inf. "
                "Change aggregation.clip_norm.",
                setting="aggregation.clip_norm",
            )

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether a round without updates adds noise; an unchanged model would reveal that there were none."""
        return anyone_up and self.noise_multiplier > 0

    @property
    def privacy(self) -> Privacy:
        """What the guarantee assumes of the rest of the plan."""
        return Privacy(sampling=self.sampling, cohort_size=self.cohort_size)

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the noisy sum over K, and ε so far as a metric."""
        if view.buffers is not None:
            raise ConfigError(
                "Private covers parameters only; this model has buffers (running statistics), which are averaged "
                "without clipping or noise. Change model to one without them.",
                setting="model",
            )
        direction, coefficients = bounded_mean(rows.delta, self.clip_norm, self.cohort_size)
        metrics = {"clipped": float((coefficients < 1 / self.cohort_size).sum())}
        if self.noise_multiplier == 0:
            return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
        std = self.noise_multiplier * self.clip_norm / self.cohort_size
        noise = view.streams.arm_generator("privacy", view.round).standard_normal(direction.numel())
        sampling_prob = self._sampling_prob(rows.facts, memory)
        this_round = round_divergences(self.sampling, self.noise_multiplier, sampling_prob)
        divergences = memory.get("divergences", 0.0) + this_round
        metrics |= {"epsilon": epsilon(self.sampling, divergences, self.delta), "noise_std": std}
        return Combined(
            direction=direction + as_tensor(noise * std, direction),
            coefficients=coefficients,
            memory={"divergences": divergences, "rate": sampling_prob},
            metrics=metrics,
        )

    def _sampling_prob(self, facts: Facts, memory: Memory) -> float:
        """Return q of this round; without updates, the last known q of Poisson sampling, else 1, the worst case."""
        if self.sampling == "none" or facts.inclusion_prob is None:
            return 1.0
        if len(facts) == 0:
            return float(memory.get("rate", 1.0)) if self.sampling == "poisson" else 1.0
        return float(np.max(facts.inclusion_prob))
