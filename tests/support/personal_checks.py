"""What must hold of personal rules on quadratics: the reported loss is F_i at the closed-form personal optimum."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.personal_runs import (
    CURVATURES,
    QUADRATICS,
    TARGETS,
    kept,
    network,
    objectives,
    personal_run,
    quadratics,
)
from tests.support.statistics_checks import copied, samples
from turnout.array_types import Floats
from turnout.engine import Task
from turnout.local import SGD, Meta
from turnout.local import Moreau as MoreauSolver
from turnout.personal import APFL, Ditto, FineTune, Layers, Moreau

H, E = np.array(CURVATURES)[:, None], np.array(TARGETS)
LR, STEPS, ROUNDS = 0.1, 3, 300
SHARED = QUADRATICS.fedavg_fixed_point(None, LR, [STEPS] * 3)
INNER = MoreauSolver(lr=0.25, steps=1, strength=2.0, inner_steps=40, inner_lr=0.3)
STRENGTH, MIXING = 0.7, 0.8


def check_reported(rule: Any, optimum: Floats, *, kind: str = "personal", task: Task | None = None, **how: Any) -> None:
    """Run to the end, and hold the reported loss against F_i at the optimum."""
    _, records = personal_run(quadratics() if task is None else task, rule, rounds=ROUNDS, **how)
    reported = records[-1].personal[f"{kind} loss"]

    assert np.allclose(reported, objectives(optimum), rtol=0, atol=1e-9), (reported, objectives(optimum))


def check_ditto(rule: Any = None) -> None:
    """v_i = argmin F_i(v) + (λ/2)‖v − x‖² at FedAvg's fixed point x."""
    check_reported(rule or Ditto(strength=STRENGTH), (E + STRENGTH * SHARED) / (H + STRENGTH))


def check_pfedme(rule: Any = None, local: Any = INNER) -> None:
    """θ_i = argmin F_i(θ) + (λ/2)‖θ − x‖², where x has the weights λh_i/(h_i + λ)."""
    weights = INNER.strength * H / (H + INNER.strength)
    shared = (weights * (E / H)).sum(0) / weights.sum()
    check_reported(rule or Moreau(), (E + INNER.strength * shared) / (H + INNER.strength), local=local)


def apfl_optimum() -> Floats:
    """Return v_i after a round that ends where it began: τ steps v ← v − ηα(h(αv + (1 − α)w_k) − e)."""
    factor = 1 - LR * MIXING**2 * H
    total = np.zeros_like(E)
    for step in range(1, STEPS + 1):
        local = E / H + (1 - LR * H) ** step * (SHARED - E / H)  # w_k
        total = factor * total - LR * MIXING * (H * (1 - MIXING) * local - E)
    return np.asarray(total / (1 - factor**STEPS))


def check_apfl(rule: Any = None) -> None:
    """Both the own model v_i and its mixture with the shared model are reported."""
    own = apfl_optimum()
    rule = rule or APFL(mixing=MIXING)
    check_reported(rule, own)
    check_reported(rule, MIXING * own + (1 - MIXING) * SHARED, kind="mixture")


def check_fine_tuning(rule: Any = None) -> None:
    """k steps from FedAvg's fixed point."""
    check_reported(rule or FineTune(steps=4, lr=0.3), E / H + (1 - 0.3 * H) ** 4 * (SHARED - E / H))


def check_per_fedavg(rule: Any = None, local: Any = None) -> None:
    """One step of rate a from the point with the weights h_i(1 − a h_i)."""
    weights = H * (1 - 0.2 * H)
    shared = (weights * (E / H)).sum(0) / weights.sum()
    local = local or Meta(lr=0.2, steps=1, inner_lr=0.2)
    check_reported(rule or FineTune(steps=1), shared - 0.2 * (H * shared - E), local=local)


class TwoParts(nn.Module):
    """A point of two coordinates, each a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.own = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.shared, self.own]).expand(inputs.shape[0], -1)


def check_layers(rule: Any = None) -> None:
    """The shared coordinate is FedAvg's fixed point, and the kept one the client's own optimum."""
    task = quadratics()
    parts = Task(federation=task.federation, module=TwoParts(), loss=task.loss)
    optimum = np.stack([np.full(3, SHARED[0]), (E / H)[:, 1]], axis=1)
    check_reported(rule or Layers(keep=("own",)), optimum, task=parts)


def check_fedrep_phases(rule: Any) -> None:
    """Three steps of the head on the sent representation, then two of the representation on the new head."""
    task, full = network(2), SGD(lr=LR, steps=2, batches="full")
    final, _ = personal_run(task, rule, local=full, rounds=1)
    models = []
    for client in range(2):
        (x, y), module = samples(task, client), copied(task)
        for is_head, steps in ((True, 3), (False, 2)):
            moving = [each for name, each in module.named_parameters() if name.startswith("2.") == is_head]
            descend(task, module, moving, (x, y), steps)
        models.append(task.layout.flatten(module))
    head = task.layout.columns(("2.weight", "2.bias"))
    mean = torch.from_numpy(task.federation.weights) @ torch.stack(models)
    mean[head] = task.layout.flatten(task.module)[head]

    assert torch.allclose(final.model, mean, rtol=0, atol=1e-14)
    assert torch.allclose(kept(final, "layers"), torch.stack(models)[:, head], rtol=0, atol=1e-14)


def check_fine_tuning_uses_training_samples(rule: Any = None) -> None:
    """The reported loss is that after steps on the client's training samples, not on those that it holds out."""
    task, full = network(), SGD(lr=LR, steps=2, batches="full")
    final, records = personal_run(task, rule or FineTune(steps=3), local=full, rounds=2)
    assert task.federation.holdout is not None
    for client in range(6):
        module = task.layout.load(copied(task), final.model)
        descend(task, module, list(module.parameters()), samples(task, client), 3)
        x, y = task.federation.holdout.of(client)
        loss = task.loss(module(x), y).mean().item()
        assert abs(records[-1].personal["personal loss"][client] - loss) < 1e-12


def descend(task: Task, module: nn.Module, moving: list[Any], batch: tuple[Tensor, Tensor], steps: int) -> None:
    """Take steps of plain PyTorch's SGD."""
    optimiser = torch.optim.SGD(moving, lr=LR)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(module(batch[0]), batch[1]).mean())
        optimiser.step()
