"""Clients at work on what they keep for themselves: what a personal rule may use and ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.learned import Learned, ModelRows
from turnout.local.batches import samples_used
from turnout.local.sgd import SGD
from turnout.models.layout import Layout
from turnout.protocols import Local
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import RowSource, RowTable
from turnout.streams import Streams

Used = Mapping[str, Tensor | ModelRows]  # models by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class AtClients:
    """Clients, the model that they were sent, their local solver, and the rows that they keep."""

    round: int
    streams: Streams
    model: Tensor  # the round's model x, or the model that is evaluated
    buffers: Tensor | None
    clients: Ids  # ascending
    sizes: Ids  # number of training samples n_i of each of these clients
    local: Local
    settings: Mapping[str, Floats]  # the solver's settings, one value per client
    layout: Layout
    first_model: Tensor  # the model before the first round, x⁰
    first_buffers: Tensor | None  # its running statistics; None: the model has none
    tables: Callable[[str, Tensor], RowTable]  # (name, first row) → the table of that name
    room: Callable[[RowTable, int], Tensor | None]  # memory for so many new rows of a table; None: there is none
    public_size: int = 0  # number of inputs of the public set

    def rows(self, name: str = "model", first: Tensor | None = None) -> RowTable:
        """Return a table with one row per client; a row is `first`, or x⁰, until the client keeps another."""
        return self.tables(name, self.first_model if first is None else first)

    def statistics(self) -> dict[str, object]:
        """Return what asks, in Fit's words, to start from each client's own running statistics and to return them."""
        if self.first_buffers is None:
            return {}
        return {"buffer_starts": self.rows("buffers", self.first_buffers), "wants_buffers": True}

    def own_models(self) -> ModelRows:
        """Return the models that clients keep, with their running statistics; x⁰ where a client keeps none yet."""
        buffers = None
        if self.first_buffers is not None:
            buffers = self.rows("buffers", self.first_buffers).take(self.clients)
        return ModelRows(parameters=self.rows().take(self.clients), buffers=buffers)

    def new_rows(self, table: RowTable) -> Tensor | None:
        """Return memory where the new rows of these clients need not be copied from; None where there is none."""
        return self.room(table, len(self.clients))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters."""
        return tuple(slot.name for slot in self.layout.slots)

    def solver(self, lr: float | None, prox_strength: float = 0.0) -> tuple[SGD, dict[str, Floats]]:
        """Return plain SGD with the round's mini-batch size, and its settings; `lr` None is the round's rate."""
        rates = self.settings["lr"] if lr is None else np.full(len(self.clients), lr)
        solver = SGD(
            lr=float(rates.max(initial=1e-300)),
            steps=1,
            prox_strength=prox_strength,
            batch_size=self.local.batch_size,
            batches=self.local.batches,
        )
        constants = {name: np.full(len(self.clients), value) for name, value in solver.numbers().items()}
        return solver, {"lr": rates, **constants}

    def training(
        self, how: tuple[Local, Mapping[str, Floats]], steps: Ids, starts: RowSource | None, **more: object
    ) -> Fit:
        """Return a request in which these clients train for themselves: nothing is sent, and `more` is in Fit's words.

        Unless `more` says otherwise, the parameters after the last step come back as `ends`.
        """
        local, settings = how
        nothing = np.zeros(len(self.clients))
        asked: dict[str, object] = {"wants_ends": self.names, "coefficients": nothing, "buffer_weights": nothing}
        return Fit(
            round=self.round,
            streams=self.streams,
            model=self.model,
            buffers=self.buffers,
            clients=self.clients,
            steps=steps,
            local=local,
            settings=settings,
            starts=starts,
            **(asked | more),  # type: ignore[arg-type]
        )

    def samples(self, local: Local, steps: Ids) -> int:
        """Return how many per-sample gradients these clients compute in so many steps of a solver."""
        return int(samples_used(self.sizes, steps, local.batch_size, local.batches, local.cycle).sum())

    def mini_batches(self, steps: Ids) -> Ids:
        """Return how many mini-batches the local solver uses in so many steps of each client."""
        cycle = self.local.cycle
        first = np.maximum.accumulate(np.array([0, *(number + 1 for number in cycle)]))  # in the first steps of a cycle
        return np.asarray(steps // len(cycle) * first[-1] + first[steps % len(cycle)])

    def steps(self, count: int) -> Ids:
        """Return so many steps for each client."""
        return np.full(len(self.clients), count, dtype=np.int64)

    def spread(self, values: Floats) -> Tensor:
        """Return one value per client as a column, to multiply rows by."""
        return torch.as_tensor(values, dtype=self.model.dtype, device=self.model.device)[:, None]


def model_rows(answer: Trained) -> dict[str, Tensor]:
    """Return the models in which clients' training ended as rows to keep, with their running statistics."""
    assert answer.ends is not None
    statistics = {} if answer.buffer_ends is None else {"buffers": answer.buffer_ends}
    return {"model": answer.ends, **statistics}


class Personal(Protocol):
    """What a client keeps for itself, and which model it uses."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Do the whole local work of a round: yield `fit`, the shared training, and whatever training there is beside.

        Returns what clients send, and the rows that each keeps for itself.
        """
        ...

    def models(self, here: AtClients) -> Used | Steps[Used]:
        """Return the models that clients would use now, one row per client: "personal" and, if any, "mixture".

        Rows alone are parameters, and the running statistics are then the shared model's.
        """
        ...
