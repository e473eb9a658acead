"""Saving: every kind of memory comes back as it was, and a run taken up half-way ends the same, bit for bit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from tests.support.optional import present
from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.tasks import blob_task
from turnout.aggregation import MIFA, ClusterFedVARP, FedAvg, FedVARP
from turnout.coordinator import Cadence, MemoryLimit, Plan, State
from turnout.coordinator.saving import PARTS, saved, tables_of
from turnout.engine import Task
from turnout.errors import ConfigError
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.row_table import RowTable
from turnout.selection import Uniform

LIKE = torch.zeros(3, dtype=torch.float64)
NEVER = Cadence(every=10**9)


def state_with(**memory: Any) -> State:
    """A state whose every part remembers this."""
    return State(model=torch.arange(3.0).double(), last_losses=np.array([1.0, np.nan]), **dict.fromkeys(PARTS, memory))  # type: ignore[arg-type]


def table(budget: int, rows: Sequence[int] = (0, 3)) -> RowTable:
    made = RowTable(5, LIKE, budget)
    ids = np.array(rows, dtype=np.int64)
    made.put(ids, torch.arange(3.0).double() + torch.from_numpy(ids)[:, None] / 3)
    return made


@pytest.mark.parametrize("part", PARTS)
def test_contract_every_part_keeps_tensors_arrays_and_plain_values(part: str) -> None:
    memory = {
        "single": torch.tensor([0.1, 0.2]),
        "double": torch.tensor([[0.1], [0.2]], dtype=torch.float64),
        "ids": np.array([3, 1, 2]),
        "flags": np.array([True, False]),
        "numbers": np.array([[0.1, np.nan], [np.inf, -0.0]]),
        "count": 7,
        "rate": 0.1,
        "name": "diurnal",
        "nothing": None,
        "switched_on": True,
        "pair": [1, 2.5],
        "narrow": np.float32(0.1),
        "nested": {"a": [1, None]},
    }
    back = getattr(again(state_with(**memory)), part)
    assert set(back) == set(memory)
    for name, value in memory.items():
        if isinstance(value, torch.Tensor):
            assert back[name].dtype == value.dtype
            assert torch.equal(back[name], value)
        elif isinstance(value, np.ndarray | np.generic):
            assert type(back[name]) is type(value)
            assert back[name].dtype == value.dtype
            assert np.array_equal(back[name], value, equal_nan=value.dtype.kind == "f")
        else:
            assert back[name] == value
            assert type(back[name]) is type(value)


@pytest.mark.parametrize("budget", [0, 1 << 20], ids=["in a file", "in RAM"])
@pytest.mark.parametrize("rows", [(), (0, 3), (0, 1, 2, 3, 4)], ids=["empty", "some", "all"])
def test_contract_tables_come_back_with_who_was_seen_and_where_they_lie(budget: int, rows: Sequence[int]) -> None:
    kept = table(budget, rows)
    back = again(state_with(table=kept)).aggregation["table"]
    assert torch.equal(back.take(np.arange(5)), kept.take(np.arange(5)))
    assert np.array_equal(back.seen, kept.seen)
    assert (back.file is None, back.budget, back.bytes) == (kept.file is None, budget, kept.bytes)
    assert back is not kept


def test_contract_a_restored_table_is_its_own() -> None:
    kept = table(0)
    back = again(state_with(table=kept)).local["table"]
    back.put(np.array([0]), torch.full((1, 3), 9.0, dtype=torch.float64))
    assert not (kept.take(np.array([0])) == 9).any()


def test_contract_rows_of_tables_are_left_to_others() -> None:
    kept = table(1 << 20)
    state = State(model=LIKE, aggregation={"table": kept, "mean": LIKE}, selection={"table": kept})
    assert set(saved(state)[0]) == {"model", "last_losses", "aggregation.mean"}
    assert tables_of(state) == {"aggregation.table": kept, "selection.table": kept}


@pytest.mark.parametrize("value", [(1, 2), {3}, np.array(["a"]), {"x": LIKE}, {1: 2}], ids=repr)
def test_error_what_cannot_be_saved_is_named(value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"local.mine is of type {type(value).__name__}. Change what the rule rem"):
        saved(State(model=LIKE, local={"mine": value}))


def test_contract_where_the_run_stands_comes_back() -> None:
    state = replace(state_with(), round=4, restart=2, world={"seconds": 12.25}, buffers=torch.tensor([0.5]))
    back = again(state)
    assert (back.round, back.restart, back.world) == (4, 2, {"seconds": 12.25})
    assert torch.equal(present(back.buffers), present(state.buffers))
    assert torch.equal(back.model, state.model)
    assert np.array_equal(back.last_losses, state.last_losses, equal_nan=True)
    assert again(state_with()).buffers is None


@given(arrays.arrays(st.sampled_from([np.float64, np.int64, np.bool_]), arrays.array_shapes(min_side=0)))
def test_property_any_array_comes_back(array: NDArray[Any]) -> None:
    back = again(state_with(array=array)).members["array"]
    assert back.dtype == array.dtype
    assert np.array_equal(back, array, equal_nan=array.dtype.kind == "f")


def resumed(task: Task, plan: Plan, at: int) -> State:
    """The last state of a run that was saved after some rounds and taken up again."""
    half, _ = run(task, replace(plan, rounds=at))
    final, _ = run(task, plan, state=again(half))
    return final


REMEMBERING = {
    "fedvarp": (FedVARP(), "none"),
    "fedvarp by data": (FedVARP(weighting="ht", normalise_by_lr=True), "none"),
    "cluster-fedvarp": (ClusterFedVARP(num_clusters=3), "none"),
    "clusters learnt": (ClusterFedVARP(num_clusters=3, clusters="updates", warm_up=4), "none"),
    "mifa": (MIFA(), "none"),
    "mifa waiting": (MIFA(wait=True), "none"),
    "scaffold": (FedAvg(), "average"),
    "scaffold and fedvarp": (FedVARP(), "gradient"),
}


@pytest.mark.parametrize("budget", [0, 1024], ids=["in a file", "in RAM"])
@pytest.mark.parametrize("hidden", [5, 65])  # rows of 43 numbers, and of 523: these are padded in RAM
@pytest.mark.parametrize("rule", REMEMBERING)
def test_identity_a_run_taken_up_half_way_ends_the_same_bit_for_bit(rule: str, hidden: int, budget: int) -> None:
    aggregation, control = REMEMBERING[rule]
    plan = Plan(
        local=SGD(lr=0.1, batch_size=4, steps=2, momentum=0.5, control=control),  # type: ignore[arg-type]
        rounds=7,
        fleet=Fleet(availability=Bernoulli(prob=0.8)),
        selection=Uniform(cohort_size=3),
        aggregation=aggregation,  # type: ignore[arg-type]
        evaluate=NEVER,
        memory=MemoryLimit(table_mib=budget),
    )
    task = blob_task(6, hidden=hidden)
    whole, _ = run(task, plan)
    for at in (1, 3, 5):
        end = resumed(task, plan, at)
        assert torch.equal(end.model, whole.model)
        assert np.array_equal(end.last_losses, whole.last_losses, equal_nan=True)
        for part in ("aggregation", "local", "world"):
            assert set(getattr(end, part)) == set(getattr(whole, part))
    tables = [value for value in (end.aggregation | end.world).values() if isinstance(value, RowTable)]
    assert tables
    assert all((table.file is not None) == (budget == 0) for table in tables)
