"""What every server rule does."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.optional import present
from tests.support.runs import run
from tests.support.server_steps import close, facts_of, step_of
from tests.support.tasks import quadratic_task
from turnout.array_types import Floats
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan, State
from turnout.coordinator.saving import restored, saved
from turnout.local import SGD
from turnout.protocols import Server
from turnout.rows import Step

RULES = sorted(catalogue("server").items())
STEADY = {  # settings under which the rule is stable near an optimum: a step of η_g/τ_a times the direction
    "fedadagrad": {"lr": 1.0, "adaptivity": 1.0},
    "fedadam": {"lr": 1.0, "beta1": 0.5, "adaptivity": 1.0},
    "fedavgm": {"momentum": 0.5},
    "fedyogi": {"lr": 1.0, "beta1": 0.5, "adaptivity": 1.0},
    "slow-momentum": {"momentum": 0.5},
}

every_rule = pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])


def rows(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(3, 5))


def walk(
    rule: Server, seeds: Sequence[int], model: Tensor | None = None, memory: dict[str, Tensor | int] | None = None
) -> Sequence[Any]:
    model = torch.linspace(-1, 1, 5, dtype=torch.float64) if model is None else model
    memory = {} if memory is None else memory
    for seed in seeds:
        moved = rule.advance(model, step_of(rows(seed)), memory)
        model, memory = moved.model, moved.memory
    return model, memory


@every_rule
def test_contract_a_zero_direction_moves_nothing_from_a_fresh_memory(name: str, rule: type[Any]) -> None:
    model = torch.linspace(-1, 1, 5, dtype=torch.float64)
    moved = rule().advance(model, step_of(np.zeros((3, 5))), {})
    assert torch.equal(moved.model, model)
    assert moved.evaluate is None or torch.equal(moved.evaluate, model)


@every_rule
def test_contract_changes_that_cancel_move_nothing_from_a_fresh_memory(name: str, rule: type[Any]) -> None:
    model = torch.linspace(-1, 1, 5, dtype=torch.float64)
    row = rows(0)[0]
    moved = rule().advance(model, step_of([row, -row]), {})
    assert torch.equal(moved.model, model)


@every_rule
def test_contract_a_first_step_goes_against_the_direction(name: str, rule: type[Any]) -> None:
    step = step_of(rows(0))
    moved = rule().advance(torch.zeros(5, dtype=torch.float64), step, {})
    assert ((moved.model * step.direction) < 0).all()


@every_rule
def test_contract_inputs_are_untouched(name: str, rule: type[Any]) -> None:
    model, memory = walk(rule(), [0, 1])
    step = step_of(rows(2))
    before = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in memory.items()}
    kept = (model.clone(), step.direction.clone(), step.coefficients.copy(), present(step.square_norms).copy())
    moved = rule().advance(model, step, memory)
    assert torch.equal(model, kept[0])
    assert torch.equal(step.direction, kept[1])
    assert np.array_equal(step.coefficients, kept[2])
    assert np.array_equal(present(step.square_norms), kept[3])
    assert memory.keys() == before.keys()
    assert all(torch.equal(torch.as_tensor(memory[key]), torch.as_tensor(before[key])) for key in before)
    shared = {value.data_ptr() for value in moved.memory.values() if isinstance(value, torch.Tensor)}
    assert step.direction.data_ptr() not in shared  # the engine may use its buffer again


@every_rule
def test_contract_the_same_in_gives_the_same_out(name: str, rule: type[Any]) -> None:
    assert torch.equal(walk(rule(), range(4))[0], walk(rule(), range(4))[0])


@every_rule
def test_contract_a_memory_saved_and_restored_goes_on_as_if_nothing_had_happened(name: str, rule: type[Any]) -> None:
    whole, _ = walk(rule(), range(6))
    model, memory = walk(rule(), range(3))
    state = State(model=model, server=memory, last_losses=np.zeros(3))
    tensors, rest = saved(state)
    back = restored({key: value.clone() for key, value in tensors.items()}, json.loads(json.dumps(rest)), state)
    assert torch.equal(walk(rule(), range(3, 6), back.model, back.server)[0], whole)


@every_rule
def test_contract_single_precision_stays_single(name: str, rule: type[Any]) -> None:
    step = step_of(rows(0))
    single = Step(
        direction=step.direction.float(),
        coefficients=step.coefficients,
        square_norms=step.square_norms,
        facts=facts_of(3),
    )
    moved = rule().advance(torch.zeros(5), single, {})
    moved = rule().advance(moved.model, single, moved.memory)
    assert moved.model.dtype == torch.float32
    assert moved.evaluate is None or moved.evaluate.dtype == torch.float32


@every_rule
def test_convergence_reaches_the_optimum_of_quadratics(name: str, rule: type[Any]) -> None:
    # equal curvature and equal steps: x* is the mean of the minima, weighted by size
    same = name == "fedexp"  # whose rate grows without bound where clients pull apart around the optimum
    minima = [[1.0, 2.0]] * 3 if same else [[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]]
    task = quadratic_task([1.0, 1.0, 1.0], minima, [2, 3, 5])
    local = SGD(lr=0.2, steps=3, batches="full")
    plan = Plan(local=local, rounds=120, server=rule(**STEADY.get(name, {})), evaluate=Cadence(every=10**9))
    final, _ = run(task, plan)
    expected = np.average(minima, axis=0, weights=[2, 3, 5])
    assert close(final.model.numpy(), expected, 1e-8)
