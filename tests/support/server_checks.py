"""Checks of server rules, which mutants of them must fail."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import nn

from tests.support.server_steps import close, followed, step_of
from turnout.server import FedAdam, FedExP


def assert_constant_direction_follows_adam(rule: FedAdam, *, rounds: int = 6) -> None:
    """A constant direction d: m_t = (1−β1ᵗ)d and v_t = (1−β2ᵗ)d², so corrected steps are all η_g d/(|d| + τ_a)."""
    d = 0.05
    models = followed(rule, [[d]] * rounds)
    at = 0.0
    for t, model in enumerate(models, start=1):
        m, v = (1 - rule.beta1**t) * d, (1 - rule.beta2**t) * d**2
        if rule.bias_correction:
            m, v = d, d**2
        at -= rule.lr * m / (math.sqrt(v) + rule.adaptivity)
        assert float(model) == pytest.approx(at, rel=1e-12), f"step {t}"


def assert_agrees_with_torch_adam(rule: FedAdam, *, rounds: int = 6) -> None:
    """PyTorch's Adam has the same correction and ε outside the root."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(rounds, 4, generator=generator, dtype=torch.float64) * 0.1
    point = nn.Parameter(torch.zeros(4, dtype=torch.float64))
    witness = torch.optim.Adam([point], lr=rule.lr, betas=(rule.beta1, rule.beta2), eps=rule.adaptivity)
    ours = followed(rule, directions.tolist())
    for direction, model in zip(directions, ours, strict=True):
        point.grad = direction.clone()
        witness.step()
        assert close(model, point.detach())


def rate(rule: FedExP, delta: ArrayLike, **step: Any) -> float:
    """Return the rate the rule finds for these changes."""
    made = step_of(delta, **step)
    return rule.advance(torch.zeros_like(made.direction), made, {}).metrics["server_lr"]


def assert_rate_is_at_least_one(rule: FedExP) -> None:
    """Changes that agree, more or less, are never shortened."""
    for delta in ([[1.0, 0.0], [1.0, 0.1]], [[3.0], [3.0]], [[2.0, 1.0]], [[0.0, 0.0]]):
        assert rate(rule, delta) >= 1


def assert_orthogonal_changes_are_stretched_by_half_their_number(rule: FedExP) -> None:
    """M orthogonal changes of one length: Σ‖Δ_i‖² / (2M‖Δ̄‖²) = M/2."""
    for clients in (4, 7):
        assert rate(rule, 3.0 * np.eye(clients)) == pytest.approx(clients / 2, rel=1e-12)


def assert_the_mean_of_two_iterates_is_measured(rule: Any) -> None:
    """Not the last iterate, though training goes on from that one."""
    start = torch.ones(4, dtype=torch.float64)
    moved = rule.advance(start, step_of(np.eye(4)), {})
    assert moved.model.tolist() == pytest.approx([0.5] * 4)  # 1 − (4/2)·¼
    assert moved.evaluate.tolist() == pytest.approx([0.75] * 4)
