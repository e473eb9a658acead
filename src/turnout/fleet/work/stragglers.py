"""Stragglers: some of those asked stop after a random number of steps.

Intuition: on a bad day a device gets somewhere, but not to the end.

    i is a straggler with probability q, anew each round
    a straggler has done s ∈ {1, …, τ_i − 1} steps, each as likely: "keep" uses them, "drop" takes nothing from it

Reduces to: complete work when q = 0.
Differs from the paper: each client flips a coin of its own, where the authors' code makes round(qK) of the cohort
stragglers, so that a client's luck does not depend on who else is asked; work is counted in steps and not in epochs.
A straggler asked for one step does that one.
Reference: Li et al. (FedProx). MLSys 2020. arXiv:1812.06127.
"""

from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import Share, rule


@rule("fleet.work")
class Stragglers:
    """Some stop early."""

    prob: Share = 0.5  # q: FedProx's drop_percent
    stopped: Literal["keep", "drop"] = "keep"  # what becomes of work that was cut short

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes."""
        draws = view.streams.uniforms("completed", view.round, clients, 2)
        short = 1 + np.floor(draws[:, 1] * np.maximum(asked - 1, 1)).astype(np.int64)
        cut = short if self.stopped == "keep" else np.zeros_like(asked)
        return np.where(draws[:, 0] < self.prob, np.minimum(cut, asked), asked)
