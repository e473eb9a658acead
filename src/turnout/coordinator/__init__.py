"""The round, the plan it follows and the state it carries."""

from turnout.coordinator.checks import check
from turnout.coordinator.plan import Cadence, Plan, State, Trust
from turnout.coordinator.round import coordinate

__all__ = ["Cadence", "Plan", "State", "Trust", "check", "coordinate"]
