"""What an engine needs to know to answer: the data, the model's code and the loss."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import nn

from turnout.data.federation import Federation
from turnout.losses import Loss
from turnout.models.layout import Layout
from turnout.requests import Answer, Evaluate, Probe, Train


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One federation, one module (its code; the parameters come with each request) and one per-sample loss.

    Runs that share the same module object and loss can be answered together.
    """

    federation: Federation
    module: nn.Module
    loss: Loss
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout.of(self.module))


Question = tuple[Task, Train | Probe | Evaluate]


class Engine(Protocol):
    """Whoever does the work. All questions that are open at once come in one call."""

    name: str

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order."""
        ...
