"""FLTrust: the server trains on a small root set and weighs client updates by agreement with its own update.

Intuition: the server follows a client only as far as its update points in the direction of the server's own update.

    Δ_0 : the server's update on its own samples, by the same local procedure
    T_i = max(0, cos(Δ_i, Δ_0))
    u   = Σ_i T_i · (‖Δ_0‖/‖Δ_i‖)·Δ_i / Σ_i T_i        u = 0 if no client is trusted

The data shares p_i have no effect, because an attacker could claim any share. A client drawn twice counts twice. No
client is trusted if the server's own update is zero or not finite. An update of zero gets no trust.

Reduces to: the server's own update when every client update points in its direction.
Differs from the paper: the authors add 1e-9 to Σ T_i; this rule does not. It gives no trust to a cosine below 1e-9,
which may be a rounding error. Otherwise a single client at a right angle would be followed at full norm.
Reference: Cao, Fang, Liu, Gong. NDSS 2021. arXiv:2012.13995.
"""

from collections.abc import Iterator
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.protocols import Ask, Combined, Memory, Population, View
from turnout.requests import Steps, Trained
from turnout.rows import Rows, as_tensor
from turnout.settings import rule

LEAST_COSINE = 1e-9  # a smaller cosine may be a rounding error


def trust_coefficients(delta: Tensor, root: Tensor, multiplicity: Ids) -> tuple[Floats, Floats]:
    """Return the coefficient and the trust T_i of each update."""
    root_norm = float(torch.linalg.vector_norm(root, dtype=torch.float64))  # ‖Δ_0‖
    norms = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).cpu().numpy()
    has_cosine = (norms > 0) & (root_norm > 0)
    safe_norms = np.where(has_cosine, norms, 1.0)
    cosines = (delta @ root).double().cpu().numpy() / (safe_norms * (root_norm or 1.0))
    trust = np.where(has_cosine & (cosines > LEAST_COSINE), np.minimum(cosines, 1.0), 0.0)  # T_i
    total = float((trust * multiplicity).sum())
    share = trust * multiplicity / total if total > 0 else np.zeros(len(trust))
    return np.asarray(share * root_norm / safe_norms), trust


@rule("aggregation")
class FLTrust:
    """Trust computed from the server's own samples. No settings: data.server_samples is the root set."""

    needs_one_model: ClassVar[bool] = True

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the federation has no root set."""
        if population.server_size == 0:
            yield Problem(
                "FLTrust needs samples at the server, its root set; this federation has none. "
                "Set data.server_samples to 100 or more, or aggregate with another robust rule.",
                "data.server_samples",
            )

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Train on the server's samples, then return the trust-weighted mean of the rescaled updates."""
        answer: Trained = yield ask.train_on_server()
        root = cast(Tensor, answer.delta)[0]  # Δ_0
        if not answer.finite.all():
            root = torch.zeros_like(root)
        coefficients, trust = trust_coefficients(rows.delta, root, rows.facts.multiplicity)
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"trusted": float((trust > 0).sum()), "root_norm": float(root.norm())}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
