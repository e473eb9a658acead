"""Engines that lie about their answers, or note what they were asked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.engine import Sequential
from turnout.engine.task import Question
from turnout.requests import Answer, Fit, Trained


class Lying(Sequential):
    """An honest engine whose answers to Fit are spoilt on the way."""

    name = "lying"

    def __init__(self, *lies: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.lies = lies

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        out: list[Answer] = []
        for (_, request), answer in zip(questions, super().answer(questions), strict=True):
            for lie in self.lies:
                answer = lie(request, answer)
            out.append(answer)
        return out


def of_training(change: Callable[..., Any]) -> Callable[..., Any]:
    """Spoil answers to Fit, if the client is in them; the others pass."""
    return lambda request, answer: change(request, answer) if isinstance(request, Fit) else answer


def at(answer: Trained, client: int) -> int | None:
    return int(np.flatnonzero(answer.clients == client)[0]) if client in answer.clients else None


def spoil(client: int, kind: str) -> Callable[..., Any]:
    """Return a lie of this kind by one client; answers are of rows."""

    def lie(request: Fit, answer: Any) -> Any:
        place = at(answer, client)
        if place is None:
            return answer
        if kind == "nan":
            return replace(answer, delta=_with_nan(answer.delta, place))  # and the flag still says it is finite
        if kind == "inf":
            rows = answer.delta.clone()
            rows[place] = torch.inf
            return replace(answer, delta=rows)
        if kind in ("nan loss", "inf loss"):
            mine = np.arange(len(answer.loss)) == place
            return replace(answer, loss=np.where(mine, float(kind.split()[0]), answer.loss))
        if kind == "nan control":
            return replace(answer, next_rows=_with_nan(answer.next_rows, place))
        if kind == "too many steps":
            return replace(answer, steps=answer.steps + (np.arange(len(answer.steps)) == place))
        if kind == "absurd samples":
            said = np.full(len(answer.clients), 10)
            said[place] = -3
            return replace(answer, num_examples=said)
        order = np.arange(len(answer.clients))
        if kind == "silent":
            order = np.delete(order, place)
        elif kind == "twice":
            order = np.append(order, place)
        picked = torch.from_numpy(order)
        return replace(
            answer,
            clients=answer.clients[order],
            steps=answer.steps[order],
            loss=answer.loss[order],
            finite=answer.finite[order],
            delta=answer.delta[picked],
            square_norms=None if answer.square_norms is None else answer.square_norms[order],
            num_examples=None if answer.num_examples is None else answer.num_examples[order],
            next_rows=None if answer.next_rows is None else answer.next_rows[picked],
        )

    return of_training(lie)


def _with_nan(rows: Tensor | None, place: int) -> Tensor | None:
    if rows is None:
        return None
    rows = rows.clone()
    rows[place, 0] = torch.nan
    return rows


KINDS = {
    "nan": "the update is not finite",
    "inf": "the update is not finite",
    "nan loss": "the loss is not a number",
    "inf loss": "the loss is not a number",
    "too many steps": "local steps, got",
    "absurd samples": "reports -3 samples",
    "silent": "no answer came",
    "twice": "answered 2 times",
}


class Spy(Sequential):
    """The real engine, with a note of what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += [request for _, request in questions]
        return super().answer(questions)
