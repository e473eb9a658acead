"""The world of a set of devices, as a driver of runs wants it."""

from collections.abc import Callable
from typing import Any

from turnout.coordinator import Plan, State, coordinate
from turnout.protocols import Population
from turnout.requests import Steps
from turnout.streams import Streams
from turnout.world.answering import serve
from turnout.world.deployment.deployment import ANSWERS, Deployment
from turnout.world.deployment.limits import Limits
from turnout.world.deployment.mailbox import Mailbox


def deployed(
    mailbox: Mailbox, limits: Limits, run: str, *, has_test: bool
) -> Callable[[Plan, Population, State, Streams], Steps[State]]:
    """Return the world of these devices: a function that runs a plan, asks the server's engine and yields records."""

    def world(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
        parts: dict[str, Any] = {"mailbox": mailbox, "limits": limits, "run": run, "has_test": has_test}
        deployment = Deployment(plan=plan, population=population, streams=streams, memory=state.world, **parts)
        return (yield from serve(deployment, ANSWERS, coordinate(plan, population, state, streams)))

    return world
