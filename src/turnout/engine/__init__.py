"""Who does the arithmetic: the vectorised engine (default), the sequential one (the reference), or a Ray cluster."""

from turnout.engine.ray import Ray
from turnout.engine.sequential import Sequential
from turnout.engine.task import Engine, Task
from turnout.engine.vectorised.engine import Vectorised
from turnout.engine.watch import Interrupted, Watch
from turnout.engine.wrapper import EngineWrapper

__all__ = ["Engine", "EngineWrapper", "Interrupted", "Ray", "Sequential", "Task", "Vectorised", "Watch"]
