"""Kernels: ways to train a block of stacked clients, the fastest first.

A block is trained by the first kernel that supports it. Each is tested alone against the sequential engine, and what is
made of a module is tried out against the module before it is used.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from turnout.engine.module_probe import agrees, changes_samples, draws_globally, draws_masks, mixes_samples, try_out
from turnout.engine.single_client import untrainable
from turnout.engine.task import Task
from turnout.engine.vectorised.jobs import Jobs
from turnout.engine.vectorised.layers import BatchOfOne, CannotLower
from turnout.engine.vectorised.lowering import Lowered, Mapped, Program
from turnout.engine.vectorised.mlp import Dense, is_plain
from turnout.engine.vectorised.scratch import Scratch
from turnout.engine.vectorised.stacked_training import BlockResult, OutputBuffers, lazy_slot, train_block
from turnout.engine.vectorised.stored_inputs import StoredInputs, stored_inputs
from turnout.engine.watch import Watch


class Kernel(Protocol):
    """One way to train a block."""

    @property
    def name(self) -> str:
        """What it is called, for tests and for the key of a tuned choice."""
        ...

    def supports(self, block: Jobs) -> bool:
        """Whether it can train these rows, and is meant for them."""
        ...

    def run(self, block: Jobs, scratch: Scratch, outputs: OutputBuffers, watch: Watch) -> BlockResult:
        """Train the rows; the result is good until the scratch is used again."""
        ...


@dataclass(frozen=True, slots=True)
class Stacked:
    """Every parameter of every row moves at every step."""

    name: str  # how the module runs on a stack: "dense" by hand, "lowered" operation by operation, "mapped" by vmap
    program: Program
    task: Task

    def supports(self, block: Jobs) -> bool:
        """Return True: it trains any rows."""
        return True

    def run(self, block: Jobs, scratch: Scratch, outputs: OutputBuffers, watch: Watch) -> BlockResult:
        """Train the rows."""
        with _naming_clients(self.task, block):
            return train_block(self.program, self.task.layout, block, scratch, outputs, watch, None)


@dataclass(frozen=True, slots=True)
class LazyFirstLayer:
    """A network whose first layer is linear and written at the end only: for few samples of many inputs."""

    program: Lowered | Dense
    task: Task
    name: str = "lazy first layer"

    def supports(self, block: Jobs) -> bool:
        """Whether the rows visit few samples beside the size of the layer."""
        return lazy_slot(self.program, self.task.layout, block) is not None

    def run(self, block: Jobs, scratch: Scratch, outputs: OutputBuffers, watch: Watch) -> BlockResult:
        """Train the rows."""
        slot = lazy_slot(self.program, self.task.layout, block)
        with _naming_clients(self.task, block):
            return train_block(self.program, self.task.layout, block, scratch, outputs, watch, slot)


@contextmanager
def _naming_clients(task: Task, block: Jobs) -> Iterator[None]:
    """Say whose batch it is that batch normalisation cannot take."""
    try:
        yield
    except BatchOfOne as error:
        request, place = block.requests[block.owner[error.row]], int(block.place[error.row])
        raise untrainable(task.module, request, place, 1, ValueError(str(error))) from error


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels for a task's module, the fastest first; none where its clients cannot be stacked."""

    on_samples: Sequence[Kernel]
    stored: StoredInputs | None = None  # what a frozen part makes of samples
    on_stored: Sequence[Kernel] = ()  # for those in place of samples


def kernels_of(task: Task) -> Kernels:
    """Return the kernels for a task's module."""
    if mixes_samples(task) or draws_globally(task):
        return Kernels(())  # a sample feels the others of its batch, or masks come from one generator for all
    try:
        lowered = Lowered(copy.deepcopy(task.module).train(), task.layout, task.loss)
        on_samples = _running(_tried(lowered, task), task)
        stored = stored_inputs(lowered, task)
        return Kernels(on_samples, stored, () if stored is None else _running(_by_hand(stored.program), task))
    except CannotLower as reason:
        return Kernels(_mapped(task, reason))


def _by_hand(lowered: Lowered) -> Lowered | Dense:
    """Return a plain network written out, and anything else as it is."""
    return Dense(lowered) if is_plain(lowered) else lowered


def _tried(lowered: Lowered, task: Task) -> Lowered | Dense:
    """Return how to run a lowered module; raises CannotLower where it does not agree with the module."""
    if changes_samples(lowered, task):
        raise CannotLower("it changes its inputs in place")
    if not agrees(_by_hand(lowered), task):
        raise CannotLower("stacked, it gives other gradients")
    return _by_hand(lowered)


def _running(program: Lowered | Dense, task: Task) -> Sequence[Kernel]:
    lazy = [LazyFirstLayer(program, task)] if program.first_layer is not None else []
    return (*lazy, Stacked("dense" if isinstance(program, Dense) else "lowered", program, task))


def _mapped(task: Task, reason: CannotLower) -> Sequence[Kernel]:
    """Return the kernel that maps the module, or none."""
    if task.layout.buffers or draws_masks(task):
        return ()  # running statistics and masks belong to one client
    mapped = Mapped(task.module, task.layout, task.loss)
    try:
        try_out(mapped, task)
    except Exception as error:  # whatever the module cannot do under vmap, it can do alone
        warnings.warn(
            f"{type(task.module).__name__} cannot be stacked ({reason}; {type(error).__name__}): "
            "its clients run one by one, with the same results.",
            stacklevel=2,
        )
        return ()
    return (Stacked("mapped", mapped, task),)
