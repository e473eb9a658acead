"""What an engine needs to know to answer: the data, the model's code and the loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from turnout.data.federation import Federation, Held, Slab
from turnout.engine.watch import Watch
from turnout.errors import ConfigError
from turnout.losses import Loss
from turnout.models.layout import Layout
from turnout.requests import Answer, EngineRequest, Fit, Probe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One federation, one module (its code; the parameters come with each request) and one per-sample loss.

    Tasks of one `kind` have the same module and loss: requests of theirs can be answered together, and what an engine
    prepares for a module it prepares once. The kind is a text, so it means the same in another process.
    """

    federation: Federation
    module: nn.Module
    loss: Loss
    kind: str = ""  # left out: this module object and this loss object, in this process
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout.of(self.module))
        if not self.kind:
            object.__setattr__(self, "kind", f"module {id(self.module)}, loss {id(self.loss)}")
        if not self.layout.slots:
            raise ConfigError(
                f"Training needs a model with parameters that can change; {type(self.module).__name__} has none. "
                "Give it some, or set requires_grad to True on those that are to be trained."
            )

    @property
    def of_images(self) -> bool:
        """Whether the module has convolutions: models of these are faster one after another than stacked."""
        return any(len(slot.shape) == 4 for slot in self.layout.slots)


Question = tuple[Task, EngineRequest]


def client_samples(federation: Federation, request: Fit | Probe) -> Slab:
    """Return the training samples of a request's clients: all they have received by its round, or some time steps'."""
    drift = federation.drift
    if drift is None or request.blocks is None:
        return federation.at(request.round).train.fetch(request.clients)
    assert isinstance(federation.train, Held)
    sizes = drift.counts(request.clients, request.blocks)
    rows = torch.from_numpy(drift.rows(request.clients, request.blocks))
    return Slab(federation.train.x, federation.train.y, np.cumsum(sizes) - sizes, sizes, rows)


def samples_of(task: Task, request: Fit) -> Slab:
    """Return the samples a request trains on: its clients', or the server's own."""
    if not request.on_server:
        return client_samples(task.federation, request)
    samples = task.federation.server
    if samples is None or len(samples) == 0:
        raise ConfigError(
            f"This rule needs samples at the server; {task.federation.name} has none. "
            "Set data.server_samples to 50 or more, or pass server=(x, y) when building the federation.",
            setting="data.server_samples",
        )
    return Slab(samples.x, samples.y, np.zeros(1, dtype=np.int64), np.array([len(samples)]), None)


class Engine(Protocol):
    """Whoever does the work. All questions that are open at once come in one call.

    To add to an engine rather than write one, derive from `turnout.engine.EngineWrapper`.
    """

    @property
    def name(self) -> str:
        """What it is called; a folder remembers it."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its tensors lie."""
        ...

    @property
    def watch(self) -> Watch:
        """Whoever waits for it. It calls `watch.check` between batches, and `watch.tell` says what it does."""
        ...

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order; raise Interrupted if the watch asks for it."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be the same for results to be the same bit for bit, as plain values; a journal keeps it."""
        ...

    def tuning(self) -> dict[str, dict[str, Any]]:
        """Return how it chose to run each kind of work, as plain values; a journal keeps them. Empty: no choice."""
        ...

    def use_tuning(self, tuning: Mapping[str, Mapping[str, Any]]) -> None:
        """Run as was chosen before; raise a LookupError, TypeError or ValueError for what `tuning` never gives."""
        ...

    def close(self) -> None:
        """Give back processes and connections at the end of a study; the next question may take them again."""
        ...
