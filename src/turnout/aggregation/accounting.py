"""Privacy accounting: Rényi differential privacy, summed over the rounds, by the library dp-accounting.

    none     Gaussian mechanism, q = 1: no amplification by sampling                     one client zeroed out
    poisson  Gaussian mechanism, each client sampled independently with probability q    one client zeroed out
    fixed    Gaussian mechanism, K of n clients without replacement, q = K/n             one client replaced

The last column is the neighbouring relation. "Zeroed out": in one of the two runs the client sends 0 whenever it is
selected; availability and selection are the same in both. This changes a sum of clipped updates by at most C.
"Replaced": the client sends any other update. This changes the sum by at most 2C, so `fixed` counts noise of z·C as
z/2. The bound for K of n is sometimes larger than the bound without sampling, which is also valid; at every order the
smaller of the two counts. The divergences of the rounds add up at every order. ε is the smallest value over all orders
for the requested δ.

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
INTEGER_ORDERS = (*range(2, 65), 128, 256, 512)  # Poisson sampling has a closed form only at integer orders
ALL_ORDERS = (*(1 + step / 10 for step in range(1, 100)), *range(11, 65), 128, 256, 512)


def orders(sampling: Sampling) -> tuple[float, ...]:
    """Return the Rényi orders at which the divergences are computed."""
    return INTEGER_ORDERS if sampling == "poisson" else ALL_ORDERS


def accounting_library() -> ModuleType:
    """Import the accounting library at first use."""
    try:
        import dp_accounting
    except ImportError as error:
        raise ConfigError(
            "Private needs the library dp-accounting to compute ε; it is not installed. "
            "Install turnout with its extra: pip install 'turnout[privacy]'."
        ) from error
    return dp_accounting  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def round_divergences(sampling: Sampling, noise_multiplier: float, sampling_prob: float) -> Floats:
    """Return the Rényi divergence of one round at every order, as a read-only array.

    Args:
        sampling: how the cohort was sampled.
        noise_multiplier: z, the standard deviation of the noise in units of C.
        sampling_prob: q, the probability that a client is in the cohort.
    """
    dp = accounting_library()
    relation = dp.NeighboringRelation.REPLACE_SPECIAL  # one client zeroed out
    events = [dp.GaussianDpEvent(noise_multiplier)]
    if sampling == "poisson":
        events = [dp.PoissonSampledDpEvent(sampling_prob, events[0])]
    elif sampling == "fixed":
        relation, replacement = dp.NeighboringRelation.REPLACE_ONE, dp.GaussianDpEvent(noise_multiplier / 2)
        events = [replacement, dp.SampledWithoutReplacementDpEvent(1.0, sampling_prob, replacement)]
    bounds = [dp.rdp.RdpAccountant(orders(sampling), relation).compose(event).rdp for event in events]
    divergences: Floats = np.min(bounds, axis=0)
    divergences.setflags(write=False)
    return divergences


def epsilon(sampling: Sampling, divergences: Floats, delta: float) -> float:
    """Return ε for δ, given the divergences summed over the rounds."""
    return float(accounting_library().rdp.compute_epsilon(orders(sampling), divergences, delta)[0])
