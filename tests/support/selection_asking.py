"""A desk that answers a rule's questions with numbers made up by hand, and notes what was asked."""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from turnout.protocols import Choice, Population, View
from turnout.requests import Expected, Probed, Trained
from turnout.streams import Streams


def view(sizes, *, seed=0, round=1, rounds=9, last=None, memory=None, dim=2):
    """A round's view of clients with these sizes; nobody has been heard from unless said."""
    sizes = np.asarray(sizes, dtype=np.int64)
    return View(
        round=round,
        rounds=rounds,
        streams=Streams(seed),
        population=Population.of(sizes),
        model=torch.zeros(dim, dtype=torch.float64),
        last_losses=np.full(len(sizes), np.nan) if last is None else np.asarray(last, dtype=float),
        memory={} if memory is None else memory,
    )


@dataclass(frozen=True)
class Question:
    what: str
    clients: np.ndarray
    batch_size: int | None = None


@dataclass
class Desk:
    """Answers by client: a loss each, a gradient each, a change each, and how long each takes."""

    loss: np.ndarray | None = None
    gradient: torch.Tensor | None = None
    delta: torch.Tensor | None = None
    pace: np.ndarray | None = None  # seconds; None: there is no clock
    asked: list[Question] = field(default_factory=list)

    def losses(self, clients, batch_size=None):
        return self._noted(Question("loss", clients, batch_size))

    def gradients(self, clients):
        return self._noted(Question("gradient", clients))

    def expected(self, clients):
        return self._noted(Question("expected", clients))

    def train(self, clients, uploads=True):
        return self._noted(Question("train", clients))

    def _noted(self, question):
        self.asked.append(question)
        return question

    def answer(self, question):
        ids = np.array(question.clients)
        if question.what == "expected":
            return Expected(seconds=None if self.pace is None else self.pace[ids])
        if question.what == "loss":
            return Probed(clients=ids, loss=self.loss[ids].copy())
        if question.what == "gradient":
            return Probed(clients=ids, gradient=self.gradient[ids])
        ones, rows = np.ones(len(ids), dtype=np.int64), self.delta[ids]
        finite = torch.isfinite(rows).all(1).numpy()
        return Trained(clients=ids, steps=ones, loss=ones * 1.0, finite=finite, delta=rows)


def chosen(rule, pool, here: View, desk: Desk | None = None) -> Choice:
    """What a rule chooses, its questions answered at the desk."""
    desk = desk or Desk()
    result = rule.choose(np.asarray(pool, dtype=np.int64), here, desk)
    if not isinstance(result, Generator):
        return result
    answer = None
    while True:
        try:
            question = result.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = desk.answer(question)


def next_round(here: View, choice: Choice) -> View:
    """The view of the next round, with what the rule remembers."""
    return replace(here, round=here.round + 1, memory={**here.memory, **choice.memory})
