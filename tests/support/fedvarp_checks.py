"""Checks of FedVARP, which mutants of it must fail."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.aggregation_inputs import combined, facts, view
from turnout.array_types import Floats
from turnout.protocols import Combined, Memory, View
from turnout.row_table import RowTable

SIZES = np.array([1, 2, 3, 4])
P = SIZES / 10
HERE = view(SIZES, 2)
OLD = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 3.0], [5.0, 1.0]])
NEW = np.array([[2.0, 1.0], [1.0, -1.0], [0.0, 4.0], [3.0, 3.0]])


def remembered(rule: Any, changes: Floats = OLD, here: View = HERE) -> Memory:
    """The memory of a rule after everyone sent these changes."""
    everyone = facts(np.arange(len(changes)), weights=here.weights, prob=np.ones(len(changes)))
    return combined(rule, everyone, changes, here).memory


def some(
    rule: Any, clients: Iterable[int], changes: Floats = NEW, memory: Memory | None = None, **more: Any
) -> Combined:
    """What a rule makes of the changes of some of the clients; the memory handed in is not spent."""
    kept = dict(memory or {})
    if "table" in kept:
        kept["table"] = copied(kept["table"])
    s = list(clients)
    total = len(changes)
    prob = np.full(len(s), len(s) / total)
    known: dict[str, Any] = {"weights": HERE.weights[s], "prob": prob, "total": total}
    given_facts = facts(s, **known | more)
    return combined(rule, given_facts, changes[s], HERE, kept)


def copied(table: RowTable) -> RowTable:
    """A copy, as `put` works in place."""
    like = torch.zeros(table.size, dtype=table.dtype)
    new = RowTable(table.num_rows, like, table.budget)
    ids = np.flatnonzero(table.seen)
    new.put(ids, table.take(ids))
    return new


def check_golden(rule: Any) -> None:
    # y = (10, 20, 0), S = {0, 2}, Δ = (4, 9): v = ½((4−10) + (9−0)) + (10+20+0)/3 = 1½ + 10; then ȳ = (4+20+9)/3
    here = view([1, 1, 1], 1)
    first = combined(rule, facts([0, 1], total=3), [10.0, 20.0], here)
    assert first.direction.item() == pytest.approx(15.0, abs=1e-12)
    second = combined(rule, facts([0, 2], total=3), [4.0, 9.0], here, first.memory)
    assert second.direction.item() == pytest.approx(11.5, abs=1e-12)
    assert second.memory["mean"].item() == pytest.approx(11.0, abs=1e-12)
    # once more, S = {1}, Δ = 23: v = (23 − 20) + 11
    third = combined(rule, facts([1], total=3), [23.0], here, second.memory)
    assert third.direction.item() == pytest.approx(14.0, abs=1e-12)


def check_multiplicity(rule: Any, memory: Memory) -> None:
    # the second coordinate, S = {1, 1, 3}: v = (2(−1−2) + (3−1))/3 + (0+2+3+1)/4 = −4/3 + 3/2
    got = some(rule, [1, 3], memory=memory, times=[2, 1])
    assert got.direction[1].item() == pytest.approx(1 / 6, abs=1e-12)
    assert got.coefficients == pytest.approx([2 / 3, 1 / 3])
    assert got.memory["mean"][1].item() == pytest.approx((0 - 1 + 3 + 3) / 4, abs=1e-12)


def check_unbiased_over_all_subsets(rule: Any, size: int, memory: Memory) -> None:
    """The mean of v over all cohorts of a size is the mean of all changes."""
    got = [some(rule, s, memory=memory).direction.numpy() for s in itertools.combinations(range(4), size)]
    assert np.mean(got, axis=0) == pytest.approx(NEW.mean(0), abs=1e-12)


def check_no_variance_once_all_were_heard(rule: Any, memory: Memory) -> None:
    """With constant changes, every cohort gives the mean of all."""
    for size in (1, 2, 3):
        for s in itertools.combinations(range(4), size):
            got = some(rule, s, changes=OLD, memory=memory).direction.numpy()
            assert got == pytest.approx(OLD.mean(0), abs=1e-12)
