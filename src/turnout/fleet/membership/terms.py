"""What arrivals and departures mean for the objective: the reboot's boost, and whether a departed client is dropped."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Changes, View
from turnout.settings import NonNegative, Positive, Range, When, rule

if TYPE_CHECKING:
    from turnout.requests import Probed, Steps, Trained

MOST_NAMED = 10  # more moves of one kind in a round than this are told as a number


def boosted(rounds_since_arrival: Ids, start: float, power: float) -> Floats:
    """Return 1 + (start − 1) / jᵖ for j = 1, 2, …, and 1 where j is 0."""
    j = np.maximum(rounds_since_arrival, 1).astype(np.float64)
    return np.where(rounds_since_arrival > 0, 1.0 + (start - 1.0) / j**power, 1.0)


def should_exclude(gap: float, *, round: int, rounds: int, constant: float) -> bool:
    """Return whether T − τ₀ ≥ c·√(Γ_l·τ₀), where τ₀ rounds were completed before the client left."""
    completed = round - 1  # τ₀
    return rounds - completed >= constant * math.sqrt(gap * completed)


def estimated_gap(client: int, view: View, ask: Ask) -> "Steps[float]":
    """Estimate Γ_l = F_l(x) − min F_l, by what the client's own local work, alone, would gain it.

    Γ̂_l = max(F_l(x) − F_l(x_l), 0), where x_l is the model after the client's local work from x: the whole work and
    the learning rate of a run's first round, so that neither a decaying rate nor the share of work that the fleet lets
    the client do this round is in it. It is a lower bound on F_l(x) − min F_l, and equal to it once local work reaches
    the client's own minimum; x stands for the optimum, so it is too large early in a run. The client is asked once
    more before it goes: two losses and one local training, and all are counted. NaN where its change is not finite.
    """
    one = np.array([client])
    before: Probed = yield ask.losses(one)
    trained: Trained = yield ask.train_alone(client)
    assert trained.delta is not None
    if not trained.finite.all():
        return math.nan
    after: Probed = yield replace(ask.losses(one), model=view.model - trained.delta[0])
    assert before.loss is not None
    assert after.loss is not None
    return max(float(before.loss[0] - after.loss[0]), 0.0)


def told(clients: Iterable[int], what: str) -> list[str]:
    """Return one event per client, or one for all where they are many."""
    ids = [int(client) for client in clients]
    if len(ids) <= MOST_NAMED:
        return [f"client {client} {what}" for client in ids]
    return [f"{len(ids)} clients {what.replace(' is ', ' are ').replace(' stays ', ' stay ')}"]


@rule("fleet.membership")
class Terms:
    """Settings that every kind of coming and going has."""

    on_departure: Literal["include", "exclude", "auto"] = "include"  # is a departed client still in the objective?
    departure_constant: Annotated[NonNegative, When(on_departure="auto")] = 1.0  # c of "auto"
    reboot: Literal["fast", "vanilla"] = "fast"  # fast: an arrived client's coefficient is boosted
    boost_start: Annotated[float, Range(least=1), When(reboot="fast")] = 3.0  # the first boost
    boost_power: Annotated[Positive, When(reboot="fast")] = 2.0  # p: how fast it goes back to 1

    @property
    def reboots_fast(self) -> bool:
        """Whether arrived clients are boosted."""
        return self.reboot == "fast" and self.boost_start > 1

    def boost(self, rounds_since_arrival: Ids) -> Floats:
        """Return the factor on an arrived client's coefficient, 1, 2, … rounds after it came; 0 is no arrival."""
        return boosted(rounds_since_arrival, self.boost_start if self.reboots_fast else 1.0, self.boost_power)

    def moved(self, arrivals: Ids, departures: Ids, view: View, ask: Ask) -> "Steps[Changes]":
        """Return the changes, once it is settled who of the departed is excluded."""
        out = np.zeros(len(departures), dtype=bool)
        for place, client in enumerate(departures):
            if view.population.num_counted + len(arrivals) - out.sum() > 1:  # an objective needs someone in it
                out[place] = yield from self._excludes(int(client), view, ask)
        events = told(arrivals, "arrived")
        events += told(departures[out], "left and is excluded")
        events += told(departures[~out], "left and stays in the objective")
        return Changes(arrivals=arrivals, departures=departures, excluded=departures[out], events=tuple(events))

    def _excludes(self, client: int, view: View, ask: Ask) -> "Steps[bool]":
        if self.on_departure != "auto":
            return self.on_departure == "exclude"
        gap = yield from estimated_gap(client, view, ask)  # NaN: no estimate, and the objective is left as it is
        return should_exclude(gap, round=view.round, rounds=view.rounds, constant=self.departure_constant)
