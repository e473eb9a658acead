"""A desk that answers a rule's questions with numbers made up by hand, and notes what was asked."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from turnout.array_types import Floats, Ids
from turnout.protocols import Choice, Population, View
from turnout.requests import Expected, Probed, Trained
from turnout.streams import Streams


def view(
    sizes: ArrayLike,
    *,
    seed: int = 0,
    round: int = 1,
    rounds: int = 9,
    last: ArrayLike | None = None,
    memory: dict[str, Ids] | None = None,
    dim: int = 2,
) -> View:
    """A round's view of clients with these sizes; nobody has been heard from unless said."""
    counts = np.asarray(sizes, dtype=np.int64)
    return View(
        round=round,
        rounds=rounds,
        streams=Streams(seed),
        population=Population.of(counts),
        model=torch.zeros(dim, dtype=torch.float64),
        last_losses=np.full(len(counts), np.nan) if last is None else np.asarray(last, dtype=float),
        memory={} if memory is None else memory,
    )


@dataclass(frozen=True)
class Question:
    what: str
    clients: Ids
    batch_size: int | None = None


@dataclass
class Desk:
    """Answers by client: a loss each, a gradient each, a change each, and how long each takes."""

    loss: Any = None
    gradient: Any = None
    delta: Any = None
    pace: Floats | None = None  # seconds; None: there is no clock
    asked: list[Question] = field(default_factory=list)

    def losses(self, clients: Ids, batch_size: int | None = None) -> Question:
        return self._noted(Question("loss", clients, batch_size))

    def gradients(self, clients: Ids) -> Question:
        return self._noted(Question("gradient", clients))

    def expected(self, clients: Ids) -> Question:
        return self._noted(Question("expected", clients))

    def train(self, clients: Ids, uploads: bool = True) -> Any:
        return self._noted(Question("train", clients))

    def _noted(self, question: Question) -> Question:
        self.asked.append(question)
        return question

    def answer(self, question: Question) -> Any:
        ids = np.array(question.clients)
        if question.what == "expected":
            return Expected(seconds=None if self.pace is None else self.pace[ids])
        if question.what == "loss":
            return Probed(clients=ids, loss=self.loss[ids].copy())
        if question.what == "gradient":
            return Probed(clients=ids, gradient=self.gradient[ids])
        ones, rows = np.ones(len(ids), dtype=np.int64), self.delta[ids]
        finite = torch.isfinite(rows).all(1).numpy()
        return Trained(clients=ids, steps=ones, loss=np.ones(len(ids)), finite=finite, delta=rows)


def chosen(rule: Any, pool: ArrayLike, here: View, desk: Desk | None = None) -> Choice:
    """What a rule chooses, its questions answered at the desk."""
    desk = desk or Desk()
    steps = rule.choose(np.asarray(pool, dtype=np.int64), here, desk)
    if isinstance(steps, Choice):
        return steps
    answer = None
    while True:
        try:
            question = steps.send(answer)
        except StopIteration as stop:
            result: Choice = stop.value
            return result
        answer = desk.answer(question)


def next_round(here: View, choice: Choice) -> View:
    """The view of the next round, with what the rule remembers."""
    return replace(here, round=here.round + 1, memory={**here.memory, **choice.memory})
