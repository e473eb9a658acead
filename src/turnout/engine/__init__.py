"""Who does the work: the vectorised engine (default) and the sequential one (the reference)."""

from turnout.engine.drive import Run, drive
from turnout.engine.passing_on import PassingOn
from turnout.engine.sequential import Sequential
from turnout.engine.task import Engine, Task
from turnout.engine.vectorised import Vectorised
from turnout.engine.watch import Interrupted, Watch

__all__ = ["Engine", "Interrupted", "PassingOn", "Run", "Sequential", "Task", "Vectorised", "Watch", "drive"]
