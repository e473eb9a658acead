"""Selection skew: how much higher than average the loss of the selected clients is.

Intuition: ρ > 1 means that selected clients have a higher loss than average; this speeds up training but biases it.

    ρ(S, x') = E_S[(1/|S|) Σ_{k∈S} (F_k(x') − F_k*)] / (F(x') − Σ_k p_k F_k*)
    ρ̄ = min ρ over rounds and points x'      the larger, the faster
    ρ̃ = max ρ over rounds at x' = x*         the error floor grows with Γ (ρ̃/ρ̄ − 1)

Reduces to: ρ ≡ 1 for unbiased selection.
Differs from the paper: ρ̄ and ρ̃ are over the rounds and points given, so they are optimistic; the authors' script
also takes F(x*) off the denominator, and this does not.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import Choice, Selection, View
from turnout.requests import Probe, Probed
from turnout.row_table import RowTable
from turnout.streams import Streams


def skew(shares: Floats, losses: Floats, minima: Floats, weights: Floats) -> Floats:
    """Return ρ at each point; NaN where every client is at its minimum.

    Args:
        shares: each client's expected share of the cohort; they sum to one.
        losses: F_k(x'), clients in the last dimension.
        minima: F_k*.
        weights: p_k.
    """
    gaps = np.asarray(losses - minima)
    above, below = gaps @ shares, gaps @ weights
    return np.asarray(np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """The two ends of ρ over a run."""

    lowest: float  # ρ̄
    at_optimum: float  # ρ̃

    @property
    def bias(self) -> float:
        """ρ̃/ρ̄ − 1: times Γ, the shape of the error floor."""
        return self.at_optimum / self.lowest - 1


def skew_bounds(shares: Floats, visited: Floats, optimal: Floats, minima: Floats, weights: Floats) -> Skew:
    """Return ρ̄ and ρ̃ over rounds.

    Args:
        shares: (rounds, clients), each round's expected shares of the cohort.
        visited: (rounds, points, clients), F_k at the points a round visited.
        optimal: F_k(x*).
        minima: F_k*.
        weights: p_k.
    """
    ratios = [skew(share, points, minima, weights) for share, points in zip(shares, visited, strict=True)]
    ends = [skew(share, optimal, minima, weights) for share in shares]
    return Skew(lowest=float(np.nanmin(np.concatenate(ratios))), at_optimum=float(np.max(ends)))


def expected_shares(
    selection: Selection,
    view: View,
    pool: Ids,
    losses: Floats,
    *,
    gradients: Tensor | None = None,
    times: int = 100,
) -> Floats:
    """Return each client's mean share of the cohort when a rule selects many times in one round.

    The rule's questions are answered with `losses` (by client; the noise of mini-batches is left out) and
    `gradients` (a row per client). The draws are keyed by the view's seed and round, and are not those of the run.
    Nothing of the run is changed: a rule that keeps a table of rows starts each draw with an empty one.
    """
    if times < 1:
        raise ConfigError(f"expected_shares needs times >= 1; got {times}. Draw the rule at least once.")
    totals = np.zeros(view.population.num_clients)
    memory = {name: value for name, value in view.memory.items() if not isinstance(value, RowTable)}
    for key in view.streams.keys("skew", view.round, np.arange(times)):
        draw_view = replace(view, streams=Streams(int(key)), memory=memory)
        choice = _choose(selection, pool, draw_view, losses, gradients)
        if len(choice.clients):
            totals[choice.clients] += choice.multiplicity / choice.multiplicity.sum()
    return totals / times


@dataclass(frozen=True, slots=True)
class _Questions:
    """The questions a rule may ask here: losses and gradients."""

    view: View

    def losses(self, clients: Ids, batch_size: int | None = None, model: Tensor | None = None) -> Probe:
        return self._probe(clients, "loss", model)

    def gradients(self, clients: Ids) -> Probe:
        return self._probe(clients, "gradient")

    def _probe(self, clients: Ids, what: str, model: Tensor | None = None) -> Probe:
        view = self.view
        return Probe(
            round=view.round,
            streams=view.streams,
            model=view.model if model is None else model,
            buffers=view.buffers,
            clients=clients,
            what=what,
        )

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"Selection skew can answer a rule that asks for losses or gradients; this one asks for {name}. "
            "Measure it from the cohorts of a run instead."
        )


def _choose(selection: Selection, pool: Ids, view: View, losses: Floats, gradients: Tensor | None) -> Choice:
    result = selection.choose(pool, view, _Questions(view))
    if not isinstance(result, Generator):
        return result
    answer: Any = None
    while True:
        try:
            request = cast(Probe, result.send(answer))  # nothing else can be asked
        except StopIteration as stop:
            return cast(Choice, stop.value)
        answer = Probed(clients=request.clients, loss=losses[request.clients])
        if request.what == "gradient":
            if gradients is None:
                raise ConfigError(
                    f"{type(selection).__name__} asks for gradients; expected_shares was given none. "
                    "Pass gradients, one row per client."
                )
            answer = Probed(clients=request.clients, gradient=gradients[request.clients])
