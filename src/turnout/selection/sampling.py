"""Weighted sampling without replacement, candidate sets and their losses, for several selection rules.

The sampling is successive: each next client is drawn in proportion to its share among the remaining clients.

    key_i = E_i / share_i,  E_i ~ Exp(1) keyed by (seed, purpose, round, client)      the smallest keys are the sample

A client's key depends on no other client, so the set of available clients does not change the order of two clients.

Reference: Efraimidis, Spirakis. Weighted random sampling with a reservoir. Information Processing Letters 2006.
"""

from typing import Literal, cast

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import Ask, Choice, View
from turnout.requests import Probed, Steps

Estimate = Literal["full", "batch", "last"]


def weighted_sample(clients: Ids, shares: Floats, size: int, view: View, purpose: str) -> Ids:
    """Return `size` clients, sampled without replacement by share, ascending; clients with share 0 come last."""
    if size >= len(clients):
        return clients
    exponentials = -np.log1p(-view.streams.uniforms(purpose, view.round, clients)[:, 0])  # E_i
    keys = np.full(len(clients), np.inf)
    np.divide(exponentials, shares, out=keys, where=shares > 0)
    return np.sort(clients[np.argpartition(keys, size)[:size]])


def candidates(pool: Ids, size: int, view: View) -> Ids:
    """Return a candidate set 𝒜, sampled from the pool without replacement in proportion to p_i."""
    return weighted_sample(pool, view.weights[pool], size, view, "candidates")


def losses_of(clients: Ids, view: View, ask: Ask, estimate: Estimate, batch_size: int | None) -> Steps[Floats]:
    """Return the loss of each client; "last" sends no request, and clients that never took part have NaN."""
    if estimate == "last":
        return view.last_losses[clients]
    answer: Probed = yield ask.losses(clients, batch_size)
    return cast(Floats, answer.loss)


def choice_of(clients: Ids) -> Choice:
    """Return the choice of these clients, each drawn once."""
    return Choice(clients=clients, multiplicity=np.ones(len(clients), dtype=np.int64))


def check_pool(rule: str, cohort_size: int, pool_size: int) -> None:
    """Raise unless K <= d."""
    if pool_size < cohort_size:
        raise ConfigError(
            f"{rule} needs pool_size >= cohort_size; got {pool_size} < {cohort_size}. "
            f"Set selection.pool_size to {cohort_size} or more.",
            setting="selection.pool_size",
        )


def check_estimate(rule: str, estimate: Estimate, batch_size: int | None) -> None:
    """Raise if the estimate needs a batch size and has none."""
    if estimate == "batch" and batch_size is None:
        raise ConfigError(
            f'{rule} with estimate = "batch" needs batch_size; got none. Set selection.batch_size.',
            setting="selection.batch_size",
        )
