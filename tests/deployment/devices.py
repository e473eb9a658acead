"""Devices with the samples of a task's clients, and a run in which they take part."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.coordinator import Plan, State
from turnout.data.federation import Federation, Held
from turnout.engine import Sequential, Task
from turnout.protocols import Local, Population
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study.driver import Run, drive
from turnout.world.deployment import Device, InProcess, Limits, Mailbox, deployed, real_fleet
from turnout.world.deployment.device_samples import SamplesOnDevices, example_of, own_federation

EVERYTHING = ("losses", "gradients", "labels")
QUICK = Limits(deadline_seconds=30, grace_seconds=30, wait_seconds=30)


def device_of(
    task: Task, client: int, local: Local, folder: Path, allows: Iterable[str] = EVERYTHING, **more: Any
) -> Device:
    """Return a device with one client's samples; its hold-out is the same samples."""
    held = task.federation.train
    assert isinstance(held, Held)
    own = held.of(client)
    federation = own_federation(own, own, task.federation.num_classes)
    return Device(Task(federation=federation, module=task.module, loss=task.loss), local, folder, allows, **more)


def devices_of(task: Task, local: Local, folder: Path) -> dict[int, Device]:
    """Return one device per client, each with a folder of its own."""
    return {c: device_of(task, c, local, folder / f"device-{c}") for c in range(task.federation.num_clients)}


def at_server(federation: Federation) -> Federation:
    """Return what a server knows of a federation whose samples lie on devices."""
    classes = federation.num_classes
    example = example_of(federation.example_shape, "float64", (), is_class=classes is not None)
    return replace(federation, train=SamplesOnDevices(federation.sizes.copy(), example))


def deploy(
    task: Task, plan: Plan, transport: Any, *, seed: int = 0, limits: Limits = QUICK, state: State | None = None,
    on_record: Any = None, poll_seconds: float = 0.005, unknown: Iterable[int] = (),
) -> tuple[State, list[Record]]:  # fmt: skip
    """Run one plan on devices and return the last state and the records."""
    federation = at_server(task.federation)
    federation.sizes[list(unknown)] = 1
    population = Population.of(federation.sizes)
    plan = replace(plan, fleet=real_fleet(with_turnover=plan.asynchrony is None))
    begin = state or State.start(task.layout.flatten(task.module), population)
    mailbox = Mailbox(transport, poll_seconds=poll_seconds)
    world = deployed(mailbox, limits, "testrun", has_test=federation.test is not None)
    parts: dict[str, Any] = {"plan": plan, "state": begin, "population": population, "world": world}
    job = Run(index=0, task=replace(task, federation=federation), streams=Streams(seed), **parts)
    records: list[Record] = []

    def keep(batch: list[tuple[int, Record]]) -> None:
        records.extend(record for _, record in batch)
        if on_record is not None:
            on_record(records[-1])

    (final,) = drive([job], Sequential(), keep)
    return final, records


def in_process(task: Task, plan: Plan, folder: Path, **how: Any) -> tuple[State, list[Record]]:
    """Run one plan on devices in this process."""
    with InProcess(devices_of(task, plan.local, folder)) as transport:
        return deploy(task, plan, transport, **how)


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two vectors, relative to the longer of them."""
    return float((one - other).abs().max() / np.maximum(float(other.abs().max()), 1e-300))
