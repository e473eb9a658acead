"""A filter's questions, answered by hand."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.filtering import Greedy
from turnout.protocols import Ask, Kept, Population, View
from turnout.requests import Scored, Trained
from turnout.streams import Streams


class Ear:
    """Answers a filter by hand: client i's change is deltas[i]; a model's loss is F(model)."""

    def __init__(self, deltas: Tensor, loss: Callable[..., Any]) -> None:
        self.deltas, self.loss = deltas, loss
        self.models: list[Tensor] = []

    def train(self, clients: Ids) -> tuple[str, Ids]:
        return ("train", clients)

    def score(self, models: Tensor, on: str = "server", client: int | None = None) -> tuple[str, Tensor]:
        return ("score", models)

    def hear(
        self,
        filtering: Any,
        pool: Ids,
        seed: int = 0,
        round: int = 1,
        memory: dict[str, Any] | None = None,
        holdout_sizes: Ids | None = None,
    ) -> Kept:
        population = Population.of(np.ones(len(self.deltas), dtype=np.int64))
        population = replace(population, holdout_sizes=holdout_sizes)
        view = View(
            round=round,
            rounds=99,
            streams=Streams(seed),
            population=population,
            model=torch.zeros(self.deltas.shape[1], dtype=torch.float64),
            memory=memory or {},
        )
        steps = filtering.keep(pool, view, self)
        answer: Trained | Scored | None = None
        while True:
            try:
                kind, what = steps.send(answer)
            except StopIteration as stop:
                result: Kept = stop.value
                return result
            if kind == "train":
                ones = np.ones(len(what), dtype=np.int64)
                answer = Trained(
                    clients=what,
                    steps=ones,
                    loss=np.zeros(len(what)),
                    finite=ones > 0,
                    delta=self.deltas[torch.from_numpy(what)],
                )
            else:
                self.models.append(what)
                answer = Scored(loss=np.array([self.loss(m) for m in what]))


def distance_to(target: Tensor) -> Callable[..., Any]:
    return lambda model: float(((model - target) ** 2).sum())


class AcceptAll(Greedy):
    """The filter with every client accepted."""

    def _search(self, rows: Tensor, order: Ids, view: View, ask: Ask) -> Generator[Any, Any, Any]:
        yield from ()
        return np.ones(len(order), dtype=bool)
