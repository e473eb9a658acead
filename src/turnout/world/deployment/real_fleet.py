"""A fleet of real devices: time is what the clock shows, and who belongs is who has connected. Nothing is foreseen."""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.fleet import Fleet
from turnout.protocols import Timing, View
from turnout.settings import rule


@rule("fleet.clock")
class WallClock:
    """Real time: a deployment measures what work takes, so no rule of a simulation can ask this clock."""

    @property
    def idle_seconds(self) -> float:
        """Nothing is foreseen."""
        return 0.0

    def run(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Timing:
        """Return that all steps are done: how far a device gets is its own answer."""
        return Timing(done=steps, late=np.zeros(len(clients), dtype=bool), round_seconds=0.0)

    def seconds(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Floats:
        """Return zeros: nothing is foreseen."""
        return np.zeros(len(clients))


@rule("fleet.membership")
class Connecting:
    """Devices that join when they first connect, and leave when they have not been connected for long."""

    def members(self, view: View) -> Ids:
        """Return everyone: who belongs is the world's answer."""
        return view.population.everyone


def real_fleet(*, with_turnover: bool) -> Fleet:
    """Return the fleet of a deployment; without turnover all devices belong to it from the beginning."""
    return Fleet(clock=WallClock(), membership=Connecting() if with_turnover else None)
