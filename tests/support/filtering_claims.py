"""Claims about FilFL's filter; the tests make them of ours, and the mutants must fail them."""

from typing import Any

import numpy as np
import torch

from tests.support.filtering_asking import Ear, distance_to
from tests.support.filtering_reference import filtered
from turnout.filtering import Greedy
from turnout.streams import Streams


def claim_decides_as_written(most: int | None = None, clients: int = 9, seeds: range = range(25)) -> None:
    """Running sums and remembered values decide as sets averaged anew do, with two evaluations a client and two."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        deltas, target = torch.tensor(rng.normal(size=(clients, 3))), torch.tensor(rng.normal(size=3))
        order = Streams(seed).generator("filter-order", 1).permutation(np.arange(clients))[:most]
        coins = Streams(seed).uniforms("filter", 1, order)[:, 0]
        for mode in ("deterministic", "randomised"):
            ear = Ear(deltas, distance_to(target))
            kept = ear.hear(Greedy(mode=mode, most=most), np.arange(clients), seed)
            expected = filtered(deltas, order.tolist(), distance_to(target), coins, mode=mode)
            assert kept.clients.tolist() == expected.tolist(), f"seed {seed}, {mode}"
            evaluations = sum(len(models) for models in ear.models)
            spared = 2 * len(order) + 2 - evaluations  # Y without its last member is empty: nothing to evaluate
            assert spared == int(sum(len(models) == 1 for models in ear.models)) <= 1


def claim_equal_gains_are_a_fair_coin(accepts: Any) -> None:
    """With a⁺ = b⁺ > 0 the probability is ½, whatever came before."""
    for before in ((5.0, 0.0), (0.0, 5.0)):
        accepts(*before, "randomised", 0.3)
        assert accepts(2.0, 2.0, "randomised", 0.49)
        assert not accepts(2.0, 2.0, "randomised", 0.51)
