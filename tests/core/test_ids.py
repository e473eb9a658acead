"""Which clients are among others, against numpy's own answer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.ids import is_among

ids = st.lists(st.integers(0, 12), max_size=8)


@given(ids, ids)
def test_is_numpys_answer(clients: list[int], others: list[int]) -> None:
    ours, theirs = np.array(clients, dtype=np.int64), np.array(others, dtype=np.int64)

    assert np.array_equal(is_among(ours, theirs), np.isin(ours, theirs))


def test_an_equal_list_and_an_empty_one() -> None:
    clients = np.array([3, 1, 2])

    assert is_among(clients, clients.copy()).tolist() == [True, True, True]
    assert is_among(clients, []).tolist() == [False, False, False]
