"""The round, the plan it follows and the state it carries."""

from turnout.coordinator.compatibility import check
from turnout.coordinator.plan import Cadence, MemoryLimit, Plan, State, Trust
from turnout.coordinator.round import coordinate
from turnout.coordinator.turnover import Turnover

__all__ = ["Cadence", "MemoryLimit", "Plan", "State", "Trust", "Turnover", "check", "coordinate"]
