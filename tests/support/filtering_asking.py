"""A filter's questions, answered by hand."""

from dataclasses import replace

import numpy as np
import torch

from turnout.filtering import Greedy
from turnout.protocols import Population, View
from turnout.requests import Scored, Trained
from turnout.streams import Streams


class Ear:
    """Answers a filter by hand: client i's change is deltas[i]; a model's loss is F(model)."""

    def __init__(self, deltas, loss):
        self.deltas, self.loss, self.models = deltas, loss, []

    def train(self, clients):
        return ("train", clients)

    def score(self, models, on="server", client=None):
        return ("score", models)

    def hear(self, filtering, pool, seed=0, round=1, memory=None, holdout_sizes=None):
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
        steps, answer = filtering.keep(pool, view, self), None
        while True:
            try:
                kind, what = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            if kind == "train":
                ones = np.ones(len(what), dtype=np.int64)
                answer = Trained(
                    clients=what,
                    steps=ones,
                    loss=ones * 0.0,
                    finite=ones > 0,
                    delta=self.deltas[torch.from_numpy(what)],
                )
            else:
                self.models.append(what)
                answer = Scored(loss=np.array([self.loss(m) for m in what]))


def distance_to(target):
    return lambda model: float(((model - target) ** 2).sum())


class AcceptAll(Greedy):
    """The filter with every client accepted."""

    def _search(self, rows, order, view, ask):
        yield from ()
        return np.ones(len(order), dtype=bool)
