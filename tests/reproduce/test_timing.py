"""Where the time goes: the answers are those of the engine, in the order of the questions."""

from collections.abc import Sequence

from turnout.engine.task import Question
from turnout.reproduce.timing import MEASURING, PROBING, TRAINING, Timed
from turnout.requests import Answer, Evaluate, Fit, Probe


class Echo:
    """An engine that answers with the question itself."""

    name = "echo"

    def __init__(self) -> None:
        self.calls: list[list[type]] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the requests."""
        self.calls.append([type(request) for _, request in questions])
        return [request for _, request in questions]  # type: ignore[misc]


def test_identity_answers_come_in_the_order_of_the_questions() -> None:
    echo = Echo()
    timed = Timed(echo)  # type: ignore[arg-type]
    kinds = (Probe, Fit, Evaluate, Fit, Probe)
    requests = [object.__new__(kind) for kind in kinds]
    answers = timed.answer([(None, request) for request in requests])  # type: ignore[misc]
    assert all(answer is request for answer, request in zip(answers, requests, strict=True))
    assert echo.calls == [[Probe, Probe], [Fit, Fit], [Evaluate]]
    assert timed.name == "echo"
    assert all(timed.seconds[kind] > 0 for kind in (TRAINING, PROBING, MEASURING))
