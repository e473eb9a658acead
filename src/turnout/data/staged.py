"""Builds a federation whose samples change with time."""

from dataclasses import replace

import numpy as np
import torch

from turnout.data.federation import Federation, Held, Samples, checked
from turnout.drift import Blocks, Drift


def staged(name: str, samples: Samples, drift: Drift, num_classes: int) -> Federation:
    """Return a federation whose samples change with time; they lie by client, then by time step."""
    clients = np.arange(len(drift.sizes))
    steps = np.arange(drift.sizes.shape[1])

    def held(blocks: Blocks) -> Held:
        offsets = np.concatenate([[0], np.cumsum(drift.counts(clients, blocks))])
        return Held(samples.x, samples.y, offsets, torch.from_numpy(drift.rows(clients, blocks)))

    stages = []
    for step in steps.tolist():
        new = np.broadcast_to(steps == step, drift.sizes.shape)
        rows = torch.from_numpy(drift.rows(clients, new))
        stages.append(
            Federation(
                train=held(np.broadcast_to(steps <= max(step - 1, 0), drift.sizes.shape)),
                holdout=held(new),
                test=Samples(samples.x[rows], samples.y[rows]),
                name=name,
                num_classes=num_classes,
                example_shape=tuple(samples.x.shape[1:]),
                example=samples.x[:1].clone(),
            )
        )
    first = checked(stages[0])
    return replace(first, drift=drift, stages=tuple(stages))
