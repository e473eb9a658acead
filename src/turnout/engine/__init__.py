"""Who does the work: the vectorised engine (default) and the sequential one (the reference)."""

from turnout.engine.drive import Run, drive
from turnout.engine.sequential import Sequential
from turnout.engine.task import Engine, Task
from turnout.engine.vectorised import Vectorised

__all__ = ["Engine", "Run", "Sequential", "Task", "Vectorised", "drive"]
