"""Random widths (Federated Dropout): every client trains ⌈r d⌉ random units of each hidden layer, new ones every round.

Intuition: dropout that is decided once per client and round, so that only the units that stay need to be sent.

    U_{i,l} a random subset of {0, …, d_l − 1} with ⌈r_i d_l⌉ members, keyed by (seed, round, client, layer)

Reduces to: FedAvg when every rate is 1.
Differs from the paper: the mean over the clients that trained a parameter, not over the whole cohort.
Reference: Caldas, Konečný, McMahan, Talwalkar. 2018. arXiv:1812.07210.
"""

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import rule
from turnout.width.rates import Rates, count_of


@rule("width")
class Random(Rates):
    """Random units of every hidden layer, for each client and round."""

    def units(self, group: int, size: int, rate: float, clients: Ids, view: View) -> Ids:
        """Return random units, one row per client."""
        draw = view.streams.uniforms(f"width units {group}", view.round, clients, size)
        count = count_of(rate, size)
        return np.sort(np.argpartition(draw, count - 1, axis=1)[:, :count], axis=1)
