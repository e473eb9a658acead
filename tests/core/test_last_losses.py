"""What clients last reported: the array of a state never changes while somebody holds it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.coordinator import State
from turnout.protocols import Population

ROUND = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


def fresh() -> State:
    return State.start(torch.zeros(1), Population.of(np.ones(6, dtype=np.int64)))


@given(st.lists(ROUND, min_size=1, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
def test_property_losses_are_those_last_heard_and_held_arrays_stay(rounds: list[list[int]], holds: list[bool]) -> None:
    state, expected = fresh(), np.full(6, np.nan)
    held: list[tuple[Any, Any]] = []
    for number, (clients, is_held) in enumerate(zip(rounds, holds, strict=False)):
        if is_held:
            held.append((state.last_losses, state.last_losses.copy()))
        expected[clients] = number
        state.hear(np.array(clients), np.full(len(clients), float(number)))
        assert np.array_equal(state.last_losses, expected, equal_nan=True)
    assert all(np.array_equal(array, copy, equal_nan=True) for array, copy in held)


@pytest.mark.parametrize("view", [lambda array: array, lambda array: array[:2], torch.from_numpy])
def test_contract_memory_is_used_again_only_where_nobody_holds_it(view: Any) -> None:
    state, places = fresh(), list[int]()
    for round in range(6):
        state.hear(np.array([round]), np.array([1.0]))
        places.append(state.last_losses.ctypes.data)
    assert places[2:4] == places[4:]
    held = view(state.last_losses)
    state.hear(np.array([0]), np.array([7.0]))
    state.hear(np.array([1]), np.array([8.0]))
    assert np.array_equal(np.asarray(held), np.ones(len(held)))


def test_contract_an_array_that_was_put_in_its_place_is_copied() -> None:
    state = fresh()
    for client in (0, 1):
        state.hear(np.array([client]), np.array([1.0]))
    state.last_losses = np.arange(6.0)
    state.hear(np.array([5]), np.array([9.0]))
    assert state.last_losses.tolist() == [0, 1, 2, 3, 4, 9]
