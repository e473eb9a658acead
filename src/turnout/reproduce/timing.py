"""An engine that measures the processor time of another engine by kind of request.

Processor time counts all threads, and does not depend on the load of the machine.
"""

import time
from collections.abc import Sequence

from turnout.engine import Engine, EngineWrapper
from turnout.engine.task import Question
from turnout.requests import Answer, Evaluate, Fit

TRAINING, PROBING, MEASURING = "training", "probing", "measuring"
KINDS: dict[type, str] = {Fit: TRAINING, Evaluate: MEASURING}


class Timed(EngineWrapper):
    """Passes the requests of each kind to another engine, and adds up their seconds."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.seconds = dict.fromkeys((TRAINING, PROBING, MEASURING), 0.0)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order."""
        kinds = [KINDS.get(type(request), PROBING) for _, request in questions]
        answers: dict[int, Answer] = {}
        for kind in dict.fromkeys(kinds):
            places = [place for place, each in enumerate(kinds) if each == kind]
            started = time.process_time()
            replies = self.inside.answer([questions[place] for place in places])
            self.seconds[kind] += time.process_time() - started
            answers |= dict(zip(places, replies, strict=True))
        return [answers[place] for place in range(len(questions))]
