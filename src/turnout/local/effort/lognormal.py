"""Lognormal: the number of local steps is drawn for each client and round from a distribution with a long tail.

Intuition: most clients do about the same work, a few do ten times as much.

    τ_i = clip( round( m · exp(σ·z − σ²/2) ), at_least, most )        z ~ N(0, 1), one per client and round

The mean is m before rounding and clipping; σ is the standard deviation of log τ_i.

Reduces to: m steps for everyone when σ = 0.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481, for work that varies by client and round.
"""

from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import MOST_STEPS, Range, StepCount, rule


def lognormal(uniforms: Floats, mean: float, sigma: float) -> Floats:
    """Return a lognormal number with this mean for each pair of uniform numbers in [0, 1)."""
    normal = np.sqrt(-2.0 * np.log1p(-uniforms[:, 0])) * np.cos(2 * np.pi * uniforms[:, 1])  # z
    return np.asarray(mean * np.exp(sigma * normal - sigma**2 / 2))


@rule("local.effort")
class Lognormal:
    """A lognormal number of steps or epochs per client and round."""

    mean: Annotated[float, Range(above=0, ceiling=MOST_STEPS)]  # mean m of the distribution, greater than 0
    # standard deviation σ of the logarithm, 0 to 10; 0 gives every client m, 0.5 to 1 is usual
    sigma: Annotated[float, Range(least=0, ceiling=10)] = 1.0
    at_least: StepCount = 1  # smallest number of steps or epochs, 1 or more
    most: StepCount | None = None  # largest number of steps or epochs, at_least or more; none is a million
    unit: Literal["steps", "epochs"] = "steps"  # unit of the numbers: local steps or local epochs

    def __post_init__(self) -> None:
        if self.most is not None and self.most < self.at_least:
            raise ConfigError(
                f"Lognormal needs most >= at_least = {self.at_least}; got {self.most}. Change local.effort.most.",
                setting="local.effort.most",
            )

    def steps(self, clients: Ids, view: View, per_epoch: Ids) -> Ids:
        """Return τ_i of each client."""
        amounts = lognormal(view.streams.uniforms("work", view.round, clients, 2), self.mean, self.sigma)
        limit = MOST_STEPS if self.most is None else self.most
        amount = np.clip(np.rint(amounts), self.at_least, limit).astype(np.int64)
        return amount if self.unit == "steps" else amount * per_epoch
