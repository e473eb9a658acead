"""Who does the arithmetic: the vectorised engine (default) and the sequential one (the reference)."""

from turnout.engine.sequential import Sequential
from turnout.engine.task import Engine, Task
from turnout.engine.vectorised.engine import Vectorised
from turnout.engine.watch import Interrupted, Watch
from turnout.engine.wrapper import EngineWrapper

__all__ = ["Engine", "EngineWrapper", "Interrupted", "Sequential", "Task", "Vectorised", "Watch"]
