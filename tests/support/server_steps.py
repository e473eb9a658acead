"""Server steps by hand, and a rule followed over several of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.protocols import Memory
from turnout.rows import Facts, Step


def close(one: Any, two: Any, tol: float = 1e-12) -> bool:
    """Whether two arrays agree, relatively or absolutely, to the tolerance and no worse."""
    return np.allclose(np.asarray(one), np.asarray(two), rtol=tol, atol=tol)


def facts_of(
    count: int, *, multiplicity: Sequence[int] | None = None, weights: Any = None, local_lr: Any = 0.1
) -> Facts:
    """Return the facts of so many clients that all did one step."""
    ones = np.ones(count, dtype=np.int64)
    return Facts(
        clients=np.arange(count),
        weights=np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float),
        num_examples=ones,
        asked_steps=ones,
        local_steps=ones,
        local_work=ones.astype(float),
        local_lr=np.broadcast_to(np.asarray(local_lr, dtype=float), (count,)).copy(),
        multiplicity=ones if multiplicity is None else np.asarray(multiplicity),
        inclusion_prob=None,
        num_clients=count,
    )


def step_of(delta: Any, coefficients: Any = None, **facts: Any) -> Step:
    """Return the step that averages these changes, one row per client."""
    rows = torch.from_numpy(np.array(delta, dtype=float))
    count = len(rows)
    shares = np.full(count, 1 / count) if coefficients is None else np.asarray(coefficients, dtype=float)
    return Step(
        direction=torch.from_numpy(shares) @ rows,
        coefficients=shares,
        square_norms=rows.square().sum(1).numpy(),
        facts=facts_of(count, **facts),
    )


def followed(rule: Any, directions: Iterable[Any], *, start: Any = None, **facts: Any) -> list[Tensor]:
    """Return the models after each of these directions, one client each."""
    model = None if start is None else torch.as_tensor(start, dtype=torch.float64)
    memory: Memory = {}
    models: list[Tensor] = []
    for direction in directions:
        step = step_of([direction], **facts)
        moved = rule.advance(torch.zeros_like(step.direction) if model is None else model, step, memory)
        model, memory = moved.model, moved.memory
        models.append(model)
    return models
