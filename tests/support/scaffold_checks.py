"""Checks of SCAFFOLD, which mutants of it must fail."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan, State
from turnout.engine import Task
from turnout.local import SGD
from turnout.protocols import View
from turnout.selection import Uniform

NEVER = Cadence(every=10**9)
H, E = np.array([1.0, 2.0, 0.5]), np.array([[4.0, 0.0], [0.0, -8.0], [3.0, 1.0]])
OPTIMUM = E.mean(0) / H.mean()


class Unequal(SGD):
    """Every client its own number of steps: 1, 3, 7."""

    def asked(self, clients: Ids, view: View) -> Ids:
        return np.asarray((1, 3, 7))[clients]


def task() -> Task:
    return quadratic_task(H.tolist(), E.tolist(), [1, 1, 1])


def scaffold(rounds: int, *, control: str = "average", local: type[Any] = Unequal, **more: Any) -> Plan:
    """A plan with controls."""
    settings = {"lr": 0.1, "steps": 1, "batches": "full", "control": control} | more.pop("solver", {})
    return Plan(local=local(**settings), rounds=rounds, evaluate=NEVER, **more)


def controls(state: State) -> tuple[Tensor, Tensor]:
    """c_i of every client, and c."""
    table = state.world["store control"]
    return table.take(np.arange(table.num_rows)), state.local["shared"]


def check_the_global_control_is_the_mean(rounds: int = 7) -> None:
    """c = Σ p_i c_i after rounds in which few of the clients, of unequal sizes, took part."""
    plan = Plan(
        local=SGD(lr=0.1, batch_size=4, steps=3, control="average"),
        rounds=rounds,
        selection=Uniform(cohort_size=2),
        evaluate=NEVER,
    )
    some = blob_task(5)
    final, _ = run(some, plan)
    local, common = controls(final)
    assert common.abs().max() > 0.01
    assert torch.allclose(common, torch.tensor(some.federation.weights) @ local, rtol=0, atol=1e-12)


def check_reaches_the_optimum(plan: Plan) -> None:
    """The model ends at x* and the controls at the clients' gradients there."""
    final, _ = run(task(), plan)
    assert final.model.numpy() == pytest.approx(OPTIMUM, abs=1e-8)
    local, common = controls(final)
    assert local.numpy() == pytest.approx(H[:, None] * OPTIMUM - E, abs=1e-7)
    assert common.numpy() == pytest.approx(np.zeros(2), abs=1e-7)
