"""Stragglers: some selected clients stop after a random number of steps.

Intuition: a busy device starts its work but does not finish it.

    i is a straggler with probability q, drawn in every round
    a straggler completes s ∈ {1, …, τ_i − 1} steps, drawn uniformly: "keep" uses its update, "drop" discards it

Reduces to: complete work when q = 0.
Differs from the paper: each client is a straggler independently of the others; the authors' code makes exactly
round(qK) clients of the cohort stragglers. Work is counted in steps, not in epochs. A straggler asked for one step
completes it.
Reference: Li et al. (FedProx). MLSys 2020. arXiv:1812.06127.
"""

from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import Share, rule


@rule("fleet.work")
class Stragglers:
    """Some clients stop early."""

    prob: Share = 0.5  # probability q to be a straggler, 0 to 1 (drop_percent in FedProx); 0.5 and 0.9 as in the paper
    # what the server does with a straggler's update: "keep" uses it (FedProx), "drop" discards it (FedAvg in the paper)
    stopped: Literal["keep", "drop"] = "keep"

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes."""
        draws = view.streams.uniforms("completed", view.round, clients, 2)
        short = 1 + np.floor(draws[:, 1] * np.maximum(asked - 1, 1)).astype(np.int64)
        cut = short if self.stopped == "keep" else np.zeros_like(asked)
        return np.where(draws[:, 0] < self.prob, np.minimum(cut, asked), asked)
