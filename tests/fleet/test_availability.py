"""Availability: always and Bernoulli."""

import numpy as np
import torch

from turnout.fleet import Always, Bernoulli
from turnout.protocols import Population, View
from turnout.streams import Streams


def view(clients, round=1):
    return View(
        round=round,
        rounds=9,
        streams=Streams(0),
        population=Population.of(np.ones(clients, dtype=np.int64)),
        model=torch.zeros(1),
    )


def test_identity_certain_coins_are_always_and_never():
    assert np.array_equal(Bernoulli(prob=1.0).up(view(30)), Always().up(view(30)))
    assert len(Bernoulli(prob=0.0).up(view(30))) == 0


def test_property_each_client_has_its_own_probability():
    prob = (0.1, 0.5, 0.9)
    ups = np.zeros(3)
    for round in range(3000):
        ups[Bernoulli(prob=prob).up(view(3, round))] += 1
    assert np.allclose(ups / 3000, prob, atol=0.04)


def test_property_a_clients_coin_does_not_depend_on_how_many_there_are():
    few, many = Bernoulli(prob=0.5).up(view(10)), Bernoulli(prob=0.5).up(view(1000))
    assert np.array_equal(few, many[many < 10])
