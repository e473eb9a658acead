"""Kernels: ways to train a block of stacked clients, the fastest first.

A block is trained by the first kernel that supports it. Each is tested alone against the sequential engine.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.engine.module_probe import mixes_samples, try_out
from turnout.engine.single_client import Worker
from turnout.engine.task import Task
from turnout.engine.vectorised.jobs import Jobs
from turnout.engine.vectorised.layers import CannotLower
from turnout.engine.vectorised.lowering import Lowered, Mapped, Program
from turnout.engine.vectorised.mlp import Dense, dense_layers
from turnout.engine.vectorised.scratch import Scratch
from turnout.engine.vectorised.stacked_training import BlockResult, OutputBuffers, lazy_slot, train_block
from turnout.engine.watch import Watch
from turnout.models.layout import Layout


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
    layout: Layout

    def supports(self, block: Jobs) -> bool:
        """Return True: it trains any rows."""
        return True

    def run(self, block: Jobs, scratch: Scratch, outputs: OutputBuffers, watch: Watch) -> BlockResult:
        """Train the rows."""
        return train_block(self.program, self.layout, block, scratch, outputs, watch, None)


@dataclass(frozen=True, slots=True)
class LazyFirstLayer:
    """A dense network whose first layer is written at the end only: for few samples of many inputs."""

    program: Dense
    layout: Layout
    name: str = "lazy first layer"

    def supports(self, block: Jobs) -> bool:
        """Whether the rows visit few samples beside the size of the layer."""
        return lazy_slot(self.program, self.layout, block) is not None

    def run(self, block: Jobs, scratch: Scratch, outputs: OutputBuffers, watch: Watch) -> BlockResult:
        """Train the rows."""
        slot = lazy_slot(self.program, self.layout, block)
        return train_block(self.program, self.layout, block, scratch, outputs, watch, slot)


def kernels_of(task: Task) -> Sequence[Kernel]:
    """Return the kernels for a task's module, the fastest first; none where its clients cannot be stacked."""
    worker, layout = Worker(task), task.layout
    if layout.buffers or worker.is_random or mixes_samples(task):
        return ()  # running statistics, dropout masks and batches belong to one client
    layers = dense_layers(task.module, layout, task.loss)
    if layers is not None:
        program = Dense(layers)
        return (LazyFirstLayer(program, layout), Stacked("dense", program, layout))
    try:
        return (Stacked("lowered", Lowered(worker.module.train(), layout, task.loss), layout),)
    except CannotLower as reason:
        mapped = Mapped(task.module, layout, task.loss)
        try:
            try_out(mapped, task)
        except Exception as error:  # whatever the module cannot do under vmap, it can do alone
            warnings.warn(
                f"{type(task.module).__name__} cannot be stacked ({reason}; {type(error).__name__}): "
                "its clients run one by one, with the same results.",
                stacklevel=2,
            )
            return ()
        return (Stacked("mapped", mapped, layout),)
