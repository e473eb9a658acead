"""Losses as weights: what the rules that weigh updates by the clients' losses at the round's model have in common.

Each changes the objective from Σ_k p_k F_k to another function of the losses, whose gradient is a weighted sum of the
∇F_k. Under client sampling the weight of an update is normalised over the cohort: a ratio estimator, whose bias
vanishes as the cohort grows, with far less variance than an unbiased one, whose normaliser would be unknown.
"""

from typing import cast

import numpy as np
from torch import Tensor

from turnout.aggregation.fedavg import Weighting, participation_weights
from turnout.array_types import Floats, Ids
from turnout.protocols import Ask
from turnout.requests import Probed, Steps
from turnout.rows import Facts, Rows, as_tensor


def cohort_losses(clients: Ids, ask: Ask) -> Steps[Floats]:
    """Ask for the loss F_k(x) of each of these clients on all of its training samples."""
    probed: Probed = yield ask.losses(clients)
    return cast(Floats, probed.loss)


def base_weights(facts: Facts, weighting: Weighting) -> Floats:
    """Return the weight of each update in the objective before its loss counts; they sum to one."""
    weights = participation_weights(facts, weighting)
    total = weights.sum()
    return np.asarray(weights / total) if total > 0 else weights


def weighted_direction(rows: Rows, coefficients: Floats) -> Tensor:
    """Return Σ_k c_k Δ_k."""
    return as_tensor(coefficients, rows.delta) @ rows.delta
