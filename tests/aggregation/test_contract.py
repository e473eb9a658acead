"""What every aggregation does."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.optional import present
from tests.support.rows_by_hand import combined, rooted_task, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from turnout.catalogue import catalogue
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.local import SGD
from turnout.losses import quadratic

OF_A_FAMILY = {"ensemble-transfer"}  # needs clients of different architectures; tested in test_ensemble_transfer.py
RULES = sorted((name, rule) for name, rule in catalogue("aggregation").items() if name not in OF_A_FAMILY)
NOT_UNANIMOUS = {
    "fltrust": "the server's own step has the last word, not the clients'",
    "q-ffl": "the step is the shorter the steeper the objective is",
}
BY_LOSS = {"appeal": {"eps": 0.0, "requirement": 1.5}, "q-ffl": {"power": 1.0}}  # settings of rules that ask for losses
ONE_VOTE = "every draw has one vote, whatever its share of the data: two clients vote twice"
ALL_ALIKE = "every client counts alike by default, whatever its share of the data"
NOT_SPLIT = {
    "appeal": ALL_ALIKE,
    "cluster-fedvarp": ALL_ALIKE,
    "fedvarp": ALL_ALIKE,
    "fltrust": ONE_VOTE,
    "krum": ONE_VOTE,
    "median": ONE_VOTE,
    "mifa": ALL_ALIKE,
    "multi-krum": ONE_VOTE,
    "norm-clipping": "the bound is the median of the norms by default, and there every draw has one vote",
    "private": ONE_VOTE,
    "trimmed-mean": ONE_VOTE,
}

DELTA = np.random.default_rng(5).normal(size=(7, 4))
SIZES = [2, 4, 6, 8, 3, 5, 7]

every_rule = pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])


def made(name: str, rule: type[Any], clients: int = 5) -> Any:
    """Return the rule with its defaults, and what it needs besides: for privacy, none of it."""
    if name == "private":
        return rule(clip_norm=math.inf, noise_multiplier=0.0, cohort_size=clients)
    needed = {"num_clusters": min(2, clients)} if "num_clusters" in inspect.signature(rule).parameters else {}
    return rule(**needed, **BY_LOSS.get(name, {}))


def local_for(name: str) -> Any:
    """Return a solver whose rows the rule can read."""
    if name != "joint":
        return SGD(lr=0.1, steps=2, batches="full")
    for solver in catalogue("local").values():
        if "correction" in inspect.signature(solver).parameters:
            return solver(lr=0.1, steps=2, batches="full", correction="joint")
    raise AssertionError("no local solver sends the second rows that the joint correction needs")


def above_zero(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the quadratics, moved up so that no loss is negative."""
    return quadratic(output, target) + 10.0


@every_rule
def test_contract_zero_in_gives_zero_out(name: str, rule: type[Any]) -> None:
    found = combined(made(name, rule), rows_of(np.zeros((5, 3)), sizes=SIZES[:5]))
    assert torch.equal(found.direction, torch.zeros(3, dtype=torch.float64))
    assert np.isfinite(found.coefficients).all()


@every_rule
def test_contract_the_order_of_clients_does_not_matter(name: str, rule: type[Any]) -> None:
    order = np.random.default_rng(2).permutation(len(DELTA))
    one = combined(made(name, rule), rows_of(DELTA, sizes=SIZES))
    two = combined(made(name, rule), rows_of(DELTA[order], sizes=np.array(SIZES)[order]))
    assert close(one.direction, two.direction)
    assert close(one.coefficients[order], two.coefficients)


@every_rule
def test_contract_a_unanimous_cohort_is_obeyed(name: str, rule: type[Any]) -> None:
    row = np.array([3.0, -1.0, 0.5])
    root = [0.0, 1.0, 0.0] if name in NOT_UNANIMOUS else None
    found = combined(made(name, rule), rows_of([row] * 5, sizes=SIZES[:5]), root=root).direction
    obeyed = close(found, torch.from_numpy(row))
    assert obeyed == (name not in NOT_UNANIMOUS), NOT_UNANIMOUS.get(name, "")


@every_rule
def test_contract_splitting_a_client_in_two_changes_nothing(name: str, rule: type[Any]) -> None:
    # client k becomes two, each with half its data and the same change; a rule that opts out must be seen to need it
    root, half = DELTA.sum(0), np.array(SIZES)
    whole = combined(made(name, rule), rows_of(DELTA, sizes=2 * half), root=root).direction
    same = []
    for k in range(len(DELTA)):
        sizes = np.insert(np.where(np.arange(len(half)) == k, half, 2 * half), k, half[k])
        parts = rows_of(np.insert(DELTA, k, DELTA[k], axis=0), sizes=sizes)
        same.append(close(combined(made(name, rule), parts, root=root).direction, whole))
    assert all(same) == (name not in NOT_SPLIT), NOT_SPLIT.get(name, "")


@every_rule
def test_contract_inputs_are_untouched(name: str, rule: type[Any]) -> None:
    rows = rows_of(DELTA, sizes=SIZES)
    before = (
        rows.delta.clone(),
        present(rows.extra).clone(),
        rows.facts.multiplicity.copy(),
        rows.facts.weights.copy(),
    )
    found = combined(made(name, rule), rows)
    found.direction.add_(1.0)
    assert torch.equal(rows.delta, before[0])
    assert torch.equal(present(rows.extra), before[1])
    assert np.array_equal(rows.facts.multiplicity, before[2])
    assert np.array_equal(rows.facts.weights, before[3])


@every_rule
def test_contract_one_client_alone_is_obeyed(name: str, rule: type[Any]) -> None:
    row = np.array([[3.0, -1.0, 0.5]])
    found = combined(made(name, rule, clients=1), rows_of(row), root=row[0])
    if name == "q-ffl":  # F = 1, q = 1, ‖Δ‖² = 10.25, η = 0.1: divided by q ‖Δ‖²/η + 1
        assert close(found.direction, torch.from_numpy(row[0]) / 103.5)
    else:
        assert close(found.direction, torch.from_numpy(row[0]))


@every_rule
def test_contract_single_precision_stays_single(name: str, rule: type[Any]) -> None:
    rows = rows_of(DELTA, sizes=SIZES)
    if not hasattr(rule, "combine"):
        return  # the engine does the sum
    single = type(rows)(rows.facts, rows.delta.float(), present(rows.extra).float(), rows.losses)
    found = combined(made(name, rule), single)
    assert found.direction.dtype == torch.float32
    assert close(found.direction.double(), combined(made(name, rule), rows).direction, 1e-5)


@every_rule
def test_engine_three_rounds_run_alike_on_every_engine(
    name: str, rule: type[Any], any_engine: Callable[[], Engine]
) -> None:
    minima = [[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0], [2.0, 2.0], [0.5, 0.5]]
    task = rooted_task(minima, root=[1.0, 1.0], sizes=[1, 2, 3, 4, 5])
    task = replace(task, loss=above_zero) if name == "q-ffl" else task
    plan = Plan(local=local_for(name), rounds=3, aggregation=made(name, rule))
    assert list(problems(plan)) == []
    final, records = run(task, plan, engine=any_engine())
    expected, _ = run(task, plan)
    assert close(final.model, expected.model)
    assert [r.round for r in records] == [0, 1, 2, 3]
    assert (final.model.abs() > 1e-3).any()  # it went somewhere
    assert all(np.isfinite(r.coefficients).all() for r in records)
    start = torch.tensor(minima, dtype=torch.float64).mean(0)
    assert (final.model - start).norm() < start.norm()  # and towards the clients
