"""The round, the plan it follows and the state it carries."""

from turnout.coordinator.compatibility import check
from turnout.coordinator.plan import Cadence, Plan, State, Trust
from turnout.coordinator.round import coordinate
from turnout.coordinator.turnover import Turnover

__all__ = ["Cadence", "Plan", "State", "Trust", "Turnover", "check", "coordinate"]
