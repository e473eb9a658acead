"""An engine that hands everything to another: what an engine that only adds to one is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from turnout.engine.task import Engine, Question
from turnout.engine.watch import Watch
from turnout.requests import Answer


class EngineWrapper:
    """Answers as the engine inside does, and keeps all its promises."""

    def __init__(self, engine: Engine) -> None:
        self.inside = engine

    @property
    def name(self) -> str:
        """The name of the engine inside."""
        return self.inside.name

    @property
    def device(self) -> torch.device:
        """Where the engine inside has its tensors."""
        return self.inside.device

    @property
    def watch(self) -> Watch:
        """Whoever waits for the engine inside."""
        return self.inside.watch

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order."""
        return self.inside.answer(questions)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the engine inside."""
        return self.inside.fingerprint()

    def tuning(self) -> dict[str, dict[str, Any]]:
        """Return how the engine inside chose to run."""
        return self.inside.tuning()

    def use_tuning(self, tuning: Mapping[str, Mapping[str, Any]]) -> None:
        """Let the engine inside run as was chosen before."""
        self.inside.use_tuning(tuning)

    def close(self) -> None:
        """Close the engine inside."""
        self.inside.close()
