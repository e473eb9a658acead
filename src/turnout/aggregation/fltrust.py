"""FLTrust: the server trains on a small root set of its own, and trusts clients as far as they point its way.

Intuition: a client is heard only if it goes with the server's own step, and no louder than that step.

    Δ_0 : the server's change on its own samples, by the same local procedure
    T_i = max(0, cos(Δ_i, Δ_0))
    u   = Σ_i T_i · (‖Δ_0‖/‖Δ_i‖)·Δ_i / Σ_i T_i        u = 0 when nobody is trusted

Weights p_i play no part: an attacker could claim any. A client drawn twice counts twice. Nobody is trusted where
the server's own step is zero or not finite, and a change of zero earns no trust.

Reduces to: the server's own step when every client points its way.
Differs from the paper: the authors' 1e-9 is not added to Σ T_i. Instead a cosine below 1e-9, which may be rounding,
earns no trust, so that a lone client at a right angle is not followed at full length.
Reference: Cao, Fang, Liu, Gong. NDSS 2021. arXiv:2012.13995.
"""

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, Population, View, as_tensor
from turnout.requests import Steps, Trained
from turnout.rows import Rows
from turnout.settings import rule

LEAST_COSINE = 1e-9  # below it a cosine may be rounding


def trusted_coefficients(delta: Tensor, root: Tensor, multiplicity: Ids) -> tuple[Floats, Floats]:
    """Return each row's coefficient and its trust T_i."""
    root_norm = float(torch.linalg.vector_norm(root, dtype=torch.float64))  # ‖Δ_0‖
    norms = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).cpu().numpy()
    moved = (norms > 0) & (root_norm > 0)
    lengths = np.where(moved, norms, 1.0)
    cosines = (delta @ root).double().cpu().numpy() / (lengths * (root_norm or 1.0))
    trust = np.where(moved & (cosines > LEAST_COSINE), np.minimum(cosines, 1.0), 0.0)  # T_i
    total = float((trust * multiplicity).sum())
    share = trust * multiplicity / total if total > 0 else np.zeros(len(trust))
    return np.asarray(share * root_norm / lengths), trust


@rule("aggregation")
class FLTrust:
    """Trust bootstrapped from the server's own samples. No settings: data.server_samples is the root set."""

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why it cannot weigh these clients."""
        if population.server_size == 0:
            yield (
                "FLTrust needs samples at the server, its root set; this federation has none. "
                "Set data.server_samples to 100 or more, or aggregate with another robust rule."
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Ask for the server's own step, then return the trusted mean at its length."""
        answer: Trained = yield ask.train_on_server()
        root = cast(Tensor, answer.delta)[0]  # Δ_0
        if not answer.finite.all():
            root = torch.zeros_like(root)
        coefficients, trust = trusted_coefficients(rows.delta, root, rows.facts.multiplicity)
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"trusted": float((trust > 0).sum()), "root_norm": float(root.norm())}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
