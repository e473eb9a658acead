"""Who belongs: arrivals and departures change the objective's weights and restart learning-rate schedules."""

from dataclasses import replace

import numpy as np

from turnout.coordinator.asking import Asker
from turnout.coordinator.generators import settle
from turnout.coordinator.plan import Plan, State
from turnout.protocols import Changes, Population, View
from turnout.requests import Steps


def admitted(plan: Plan, population: Population, state: State) -> Population:
    """Return the population as it stands: weights over those counted, `everyone` those who are there."""
    if plan.fleet.membership is None:
        return population
    if not state.members:
        present = np.zeros(population.num_clients, dtype=bool)
        present[plan.fleet.membership.at_start(population)] = True
        arrived = np.zeros(population.num_clients, dtype=np.int64)
        state.members = {"present": present, "counted": present.copy(), "arrived": arrived}
    counted = np.where(state.members["counted"], population.sizes, 0)
    return replace(
        population,
        weights=counted / max(counted.sum(), 1),
        everyone=np.flatnonzero(state.members["present"]),
        counted=state.members["counted"],
    )


def change_members(plan: Plan, population: Population, view: View, state: State) -> Steps[tuple[str, ...]]:
    """Let clients come and go before the round; return what happened, for the record."""
    if plan.fleet.membership is None:
        return ()
    asker = Asker(plan, view, state)
    changes: Changes = yield from settle(plan.fleet.membership.changes(view, asker))
    present, counted = state.members["present"].copy(), state.members["counted"].copy()
    arrived = state.members["arrived"].copy()
    present[changes.arrivals] = counted[changes.arrivals] = True
    arrived[changes.arrivals] = view.round
    present[changes.departures] = False
    counted[changes.excluded] = False
    state.members = {"present": present, "counted": counted, "arrived": arrived}
    if len(changes.arrivals) or len(changes.excluded):  # a new objective
        state.restart = view.round - 1
    return changes.events
