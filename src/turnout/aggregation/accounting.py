"""What noise and sampling are worth: Rényi differential privacy, round by round, by the library dp-accounting.

    none     Gaussian mechanism, q = 1: nothing is gained from who was asked         one client zeroed out
    poisson  Gaussian mechanism on each client with probability q, independently     one client zeroed out
    fixed    Gaussian mechanism on K of n clients without replacement, q = K/n       one client for another

Zeroed out: in one of the two runs the client sends 0 whenever it is asked; who is up and who is asked is the same. That
moves a sum of clipped changes by up to C. One client for another: it sends anything else, which moves the sum by up to
2C, so `fixed` counts noise of z·C as z/2. The bound for K of n is sometimes larger than that without a draw, which
holds as well: the smaller of the two counts at every order. Rounds add up order by order, and ε is the smallest that
any order gives for the δ asked for.

Reference: Mironov. CSF 2017. arXiv:1702.07476; Mironov, Talwar, Zhang. 2019. arXiv:1908.10530; Wang, Balle,
Kasiviswanathan. AISTATS 2019. arXiv:1808.00087.
"""

from functools import lru_cache
from types import ModuleType
from typing import Literal

import numpy as np

from turnout.array_types import Floats
from turnout.errors import ConfigError

Sampling = Literal["none", "poisson", "fixed"]
WHOLE = (*range(2, 65), 128, 256, 512)  # orders; a Poisson draw has no closed form at others
FINE = (*(1 + step / 10 for step in range(1, 100)), *range(11, 65), 128, 256, 512)


def orders(sampling: Sampling) -> tuple[float, ...]:
    """Return the orders at which a run is accounted for."""
    return WHOLE if sampling == "poisson" else FINE


def library() -> ModuleType:
    """Return the accounting library, imported when it is first needed."""
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError(
            "Private counts ε with the library dp-accounting, which is not installed. "
            "Install turnout with its extra: pip install 'turnout[privacy]'."
        ) from error
    return dp_accounting  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def spent(sampling: Sampling, noise_multiplier: float, rate: float) -> Floats:
    """Return the Rényi divergence of one round at every order; not to be written to.

    Args:
        sampling: how the cohort was drawn.
        noise_multiplier: z, the noise in units of C.
        rate: q, how likely a client was to be asked.
    """
    dp = library()
    relation = dp.NeighboringRelation.REPLACE_SPECIAL  # one client zeroed out
    events = [dp.GaussianDpEvent(noise_multiplier)]
    if sampling == "poisson":
        events = [dp.PoissonSampledDpEvent(rate, events[0])]
    elif sampling == "fixed":
        relation, swap = dp.NeighboringRelation.REPLACE_ONE, dp.GaussianDpEvent(noise_multiplier / 2)
        events = [swap, dp.SampledWithoutReplacementDpEvent(1.0, rate, swap)]
    bounds = [dp.rdp.RdpAccountant(orders(sampling), relation).compose(event).rdp for event in events]
    divergences: Floats = np.min(bounds, axis=0)
    divergences.setflags(write=False)
    return divergences


def epsilon(sampling: Sampling, divergences: Floats, delta: float) -> float:
    """Return ε for this δ, after rounds whose divergences add up to these."""
    return float(library().rdp.compute_epsilon(orders(sampling), divergences, delta)[0])
