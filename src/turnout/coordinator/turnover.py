"""Turnover: what arrivals and departures mean for the objective, and how new clients catch up.

Intuition: a newcomer's data must count at once, and a leaver's need not count for ever.

    arrival of l:     p_k = n_k / (n + n_l), learning-rate schedules restart, and l's coefficient is multiplied by
                      b(j) = 1 + (b₁ − 1) / jᵖ in its j-th round (fast reboot; b ≡ 1 is a vanilla reboot)
    departure of l:   include  l stays in the objective, inactive for ever
                      exclude  p_k = n_k / (n − n_l), learning-rate schedules restart
                      auto     exclude  ⇔  T − τ₀ ≥ c·√(Γ_l·τ₀)          τ₀: rounds completed before it left

Reduces to: the federation without turnover when nobody arrives or departs; a vanilla reboot when b₁ = 1.
Differs from the paper: the paper leaves open b beyond "from 3 to 1 as O(j⁻²)", c, and how to know Γ_l. Here Γ̂_l is
what the leaving client's own local work, as in the first round, would gain it, F_l(x) − F_l(x_l). The server asks for
it before the client goes: neither the decayed learning rate nor the work its device manages this round is in it.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, View
from turnout.requests import Probed, Steps, Trained
from turnout.settings import NonNegative, Positive, Range, When, rule

MOST_NAMED = 10  # more arrivals or departures in a round than this are reported as a number


def arrival_boost(rounds_since_arrival: Ids, start: float, power: float) -> Floats:
    """Return 1 + (start − 1) / jᵖ for j = 1, 2, …, and 1 where j is 0."""
    j = np.maximum(rounds_since_arrival, 1).astype(np.float64)
    return np.where(rounds_since_arrival > 0, 1.0 + (start - 1.0) / j**power, 1.0)


def should_exclude(gap: float, *, round: int, rounds: int, constant: float) -> bool:
    """Return whether T − τ₀ ≥ c·√(Γ_l·τ₀), where τ₀ rounds were completed before the client left."""
    completed = round - 1  # τ₀
    return rounds - completed >= constant * math.sqrt(gap * completed)


def estimated_gap(client: int, view: View, ask: Ask) -> Steps[float]:
    """Estimate Γ_l = F_l(x) − min F_l, by what the client's own local work, alone, would gain it.

    Γ̂_l = max(F_l(x) − F_l(x_l), 0), where x_l is the model after the client's local work from x: the whole work and
    the learning rate of a run's first round. It is a lower bound on F_l(x) − min F_l, and equal to it once local work
    reaches the client's own minimum; x stands for the optimum, so it is too large early in a run. The costs, two losses
    and one local training, are counted. NaN if the update is not finite.
    """
    one = np.array([client])
    before: Probed = yield ask.losses(one)
    trained: Trained = yield ask.train_alone(client)
    if trained.delta is None or not len(trained.clients) or not trained.finite.all():
        return math.nan
    after: Probed = yield replace(ask.losses(one), model=view.model - trained.delta[0])
    assert before.loss is not None
    assert after.loss is not None
    return max(float(before.loss[0] - after.loss[0]), 0.0)


def turnover_events(clients: Iterable[int], what: str) -> list[str]:
    """Return one event per client, or one for all where they are many."""
    ids = [int(client) for client in clients]
    if len(ids) <= MOST_NAMED:
        return [f"client {client} {what}" for client in ids]
    return [f"{len(ids)} clients {what.replace(' is ', ' are ').replace(' stays ', ' stay ')}"]


@rule("turnover")
class Turnover:
    """How the objective follows clients that arrive and depart."""

    # whether a departed client stays in the objective: "include" keeps it, "exclude" drops it, "auto" decides by the
    # paper's criterion
    on_departure: Literal["include", "exclude", "auto"] = "include"
    # constant c of on_departure = "auto", 0 or more; a larger c keeps departed clients more often, 1 is usual
    departure_constant: Annotated[NonNegative, When(on_departure="auto")] = 1.0
    # treatment of an arrived client: "fast" boosts its coefficient at first, "vanilla" does not
    reboot: Literal["fast", "vanilla"] = "fast"
    # boost b₁ in the arrived client's first round, 1 or more; 1 is no boost, 3 as in the paper
    boost_start: Annotated[float, Range(least=1), When(reboot="fast")] = 3.0
    # power p of the boost's decay to 1, greater than 0; 2 as in the paper
    boost_power: Annotated[Positive, When(reboot="fast")] = 2.0

    @property
    def reboots_fast(self) -> bool:
        """Whether the coefficients of arrived clients are boosted."""
        return self.reboot == "fast" and self.boost_start > 1

    def boost(self, rounds_since_arrival: Ids) -> Floats:
        """Return the factor on an arrived client's coefficient, 1, 2, … rounds after it came; 0 is no arrival."""
        return arrival_boost(rounds_since_arrival, self.boost_start if self.reboots_fast else 1.0, self.boost_power)

    def excluded(self, departures: Ids, num_arrivals: int, view: View, ask: Ask) -> Steps[Ids]:
        """Return which of the departed clients the objective drops; it never drops the last one."""
        out = np.zeros(len(departures), dtype=bool)
        for place, client in enumerate(departures):
            if view.population.num_counted + num_arrivals - out.sum() > 1:
                out[place] = yield from self._excludes(int(client), view, ask)
        return departures[out]

    def _excludes(self, client: int, view: View, ask: Ask) -> Steps[bool]:
        if self.on_departure != "auto":
            return self.on_departure == "exclude"
        gap = yield from estimated_gap(client, view, ask)  # NaN: no estimate, and the objective stays as it is
        return should_exclude(gap, round=view.round, rounds=view.rounds, constant=self.departure_constant)
