"""Who belongs: arrivals and departures change the objective's weights and restart learning-rate schedules."""

from dataclasses import replace

import numpy as np

from turnout.array_types import Ids
from turnout.coordinator.asking import Asker
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.turnover import turnover_events
from turnout.protocols import Population, View
from turnout.requests import Steps


def admitted(population: Population, state: State) -> Population:
    """Return the population as it stands: weights over those counted, `everyone` those who are members."""
    if not state.members:
        return population
    counted = np.where(state.members["counted"], population.sizes, 0)
    return replace(
        population,
        weights=counted / max(counted.sum(), 1),
        everyone=np.flatnonzero(state.members["present"]),
        counted=state.members["counted"],
    )


def begin_members(population: Population, state: State, members: Ids | None) -> None:
    """Note who belongs before the first round; None is everyone, always."""
    if members is None or state.members:
        return
    present = np.zeros(population.num_clients, dtype=bool)
    present[members] = True
    arrived = np.zeros(population.num_clients, dtype=np.int64)
    state.members = {"present": present, "counted": present.copy(), "arrived": arrived}


def change_members(plan: Plan, view: View, state: State, members: Ids | None) -> Steps[tuple[str, ...]]:
    """Let clients join and leave before the round; return what happened, for the record."""
    if members is None:
        return ()
    present, counted = state.members["present"].copy(), state.members["counted"].copy()
    now = np.zeros_like(present)
    now[members] = True
    arrivals, departures = np.flatnonzero(now & ~present), np.flatnonzero(present & ~now)
    excluded = yield from plan.turnover.excluded(departures, len(arrivals), view, Asker(plan, view, state))
    arrived = state.members["arrived"].copy()
    arrived[arrivals] = view.round
    counted[arrivals] = True
    counted[excluded] = False
    state.members = {"present": now, "counted": counted, "arrived": arrived}
    if len(arrivals) or len(excluded):  # a new objective
        state.restart = view.round - 1
    events = turnover_events(arrivals, "arrived")
    events += turnover_events(excluded, "left and is excluded")
    events += turnover_events(np.setdiff1d(departures, excluded), "left and stays in the objective")
    return tuple(events)
