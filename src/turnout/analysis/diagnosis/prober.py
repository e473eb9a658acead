"""Losses, gradients and local work of clients at a model, measured by an engine; nothing is trained for good."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.engine import Engine, Task
from turnout.errors import DataError
from turnout.local import SGD
from turnout.protocols import Population
from turnout.requests import Fit, Probe, Probed, Trained
from turnout.row_table import RowTable
from turnout.streams import Streams

MOST_CLIENTS = 100  # that are measured; of more, a sample is drawn
MOST_NUMBERS = 1 << 26  # in the matrix of their gradients
FEWEST_CLIENTS = 8  # that are measured, whatever the size of the model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prober:
    """A federation and a model, ready to be measured."""

    task: Task
    engine: Engine
    streams: Streams
    buffers: Tensor | None
    clients: Ids  # that are measured, ascending
    weights: Floats  # p_i of these clients; they sum to one
    sizes: Ids
    num_clients: int  # in the whole federation

    @classmethod
    def of(
        cls, task: Task, engine: Engine, streams: Streams, population: Population, buffers: Tensor | None = None
    ) -> "Prober":
        """Return a prober of all clients, or of a random sample where there are many."""
        count = population.num_clients
        numbers = max(task.layout.size, 1)
        most = min(count, MOST_CLIENTS, max(FEWEST_CLIENTS, MOST_NUMBERS // numbers))
        clients = np.sort(streams.generator("diagnosis").permutation(count)[:most])
        weights = population.weights[clients]
        return cls(
            task=task,
            engine=engine,
            streams=streams,
            buffers=buffers,
            clients=clients,
            weights=weights / weights.sum(),
            sizes=population.sizes[clients],
            num_clients=count,
        )

    @property
    def num_samples(self) -> int:
        """Number of samples of the measured clients."""
        return int(self.sizes.sum())

    def losses(self, model: Tensor, starts: Tensor | None = None) -> Floats:
        """Return F_i(x) of each client; with `starts`, each at a model of its own."""
        if starts is not None:
            return self._fit(model, 1, 0.0, starts=starts).loss
        request = Probe(
            round=1, streams=self.streams, model=model, buffers=self.buffers, clients=self.clients, what="loss"
        )
        (answer,) = self.engine.answer([(self.task, request)])
        assert isinstance(answer, Probed)
        assert answer.loss is not None
        return answer.loss

    def objective(self, model: Tensor) -> tuple[float, Tensor]:
        """Return F(x) = Σ p_i F_i(x) and its gradient."""
        done = self._fit(model, 1, 1.0, summed=True)
        assert done.reduced is not None
        return float(self.weights @ done.loss), done.reduced

    def gradients(self, model: Tensor, *, batch_size: int | None = None, round: int = 1) -> Tensor:
        """Return ∇F_i(x) of each client as a row, or its estimate from one mini-batch, keyed by the round."""
        return self._rows(self._fit(model, 1, 1.0, batch_size=batch_size, round=round))

    def updates(self, model: Tensor, steps: int | Ids, lr: float | Floats, starts: Tensor | None = None) -> Tensor:
        """Return the update Δ_i of each client after so many steps of gradient descent on all its samples."""
        return self._rows(self._fit(model, steps, lr, starts=starts))

    def _rows(self, done: Trained) -> Tensor:
        assert done.delta is not None
        if not np.all(done.finite):
            raise DataError(
                "A diagnosis needs finite gradients; those of some clients are not. "
                "Lower local.lr, or check the data and the model."
            )
        return done.delta

    def _fit(
        self,
        model: Tensor,
        steps: int | Ids,
        lr: float | Floats,
        *,
        batch_size: int | None = None,
        summed: bool = False,
        starts: Tensor | None = None,
        round: int = 1,
    ) -> Trained:
        count = len(self.clients)
        batches: dict[str, Any] = {"batches": "full"} if batch_size is None else {"batch_size": batch_size}
        table = None
        if starts is not None:
            table = RowTable(self.num_clients, model)
            table.put(self.clients, starts)
        request = Fit(
            round=round,
            streams=self.streams,
            model=model,
            buffers=self.buffers,
            clients=self.clients,
            steps=np.broadcast_to(np.asarray(steps, dtype=np.int64), count).copy(),
            local=SGD(lr=1.0, steps=1, **batches),
            settings={"lr": np.broadcast_to(np.asarray(lr, dtype=np.float64), count).copy()},
            coefficients=self.weights if summed else None,
            buffer_weights=self.weights,
            starts=table,
        )
        (answer,) = self.engine.answer([(self.task, request)])
        assert isinstance(answer, Trained)
        return answer
