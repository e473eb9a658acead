"""Poisson selection: a coin for every client."""

import numpy as np
import pytest

from tests.support.optional import present
from tests.support.selection_asking import chosen, view
from turnout.errors import ConfigError
from turnout.selection import Poisson, Uniform
from turnout.streams import Streams


def test_golden_a_client_is_asked_when_its_own_uniform_is_below_q() -> None:
    here, pool = view([1] * 50, seed=3, round=4), np.arange(0, 50, 2)
    coins = Streams(3).uniforms("selection", 4, pool)[:, 0]
    choice = chosen(Poisson(prob=0.3), pool, here)
    assert choice.clients.tolist() == pool[coins < 0.3].tolist()
    assert 0 < len(choice.clients) < len(pool)
    assert present(choice.inclusion_prob).tolist() == [0.3] * len(choice.clients)
    assert choice.multiplicity.tolist() == [1] * len(choice.clients)


def test_identity_q_one_is_everyone() -> None:
    pool = np.array([1, 4, 7])
    everyone = chosen(Uniform(), pool, view([1] * 9))
    assert chosen(Poisson(prob=1.0), pool, view([1] * 9)).clients.tolist() == everyone.clients.tolist()


def test_property_who_else_is_up_changes_nobodys_coin() -> None:
    here = view([1] * 40, seed=1)
    some, all_ = np.arange(10, 30), np.arange(40)
    alone = set(chosen(Poisson(prob=0.5), some, here).clients.tolist())
    assert alone == set(chosen(Poisson(prob=0.5), all_, here).clients.tolist()) & set(some.tolist())


def test_property_coins_fall_right_as_often_as_asked() -> None:
    rounds, n = 200, 100
    asked = [len(chosen(Poisson(prob=0.2), np.arange(n), view([1] * n, round=t)).clients) for t in range(1, rounds + 1)]
    assert abs(np.mean(asked) - 20) < 4 * 4 / np.sqrt(rounds)  # a deviation of 4 each
    assert 3.3 < np.std(asked) < 4.7  # and the number itself is left to chance


@pytest.mark.parametrize("prob", [0.0, -0.1, 1.1, float("nan")])
def test_error_a_share_that_is_none_names_the_setting(prob: float) -> None:
    with pytest.raises(ConfigError, match=r"Poisson needs prob (in \(0, 1\]|to be a number); got .*selection\.prob"):
        Poisson(prob=prob)
