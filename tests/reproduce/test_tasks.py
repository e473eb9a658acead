"""Data that only one paper needs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from turnout.data.federation import Held
from turnout.errors import ConfigError
from turnout.losses import quadratic
from turnout.reproduce.tasks import MOST_COPIES, ParetoSynthetic, RandomQuadratics, Regions, above_minimum
from turnout.streams import Streams


def test_golden_parabolas_lie_in_their_ranges_and_weights_are_copies() -> None:
    rule = RandomQuadratics(clients=40, dim=5, curvature=(1.0, 20.0), target=(0.0, 100.0), weight_power=3.0)
    drawn = rule.quadratics(Streams(3))
    assert drawn.curvatures is not None
    assert drawn.targets is not None
    assert drawn.num_examples is not None
    assert 1 <= min(drawn.curvatures) < 5
    assert 15 < max(drawn.curvatures) <= 20
    assert np.min(drawn.targets) >= 0
    assert 90 < np.max(drawn.targets) <= 100
    assert np.mean(drawn.num_examples) / MOST_COPIES == pytest.approx(0.75, abs=0.1)  # E of power(3)
    assert rule.build(Streams(3)).sizes.tolist() == list(drawn.num_examples)
    assert rule.quadratics(Streams(4)).curvatures != drawn.curvatures


def test_identity_a_range_of_one_curvature_makes_all_alike() -> None:
    assert set(RandomQuadratics(curvature=(1.0, 1.0)).quadratics(Streams(0)).curvatures or ()) == {1.0}


def test_identity_above_minimum_is_the_quadratic_with_its_minimum_at_zero() -> None:
    target = torch.tensor([[2.0, 4.0, -6.0]], dtype=torch.float64)  # h = 2, e = (4, −6): the minimum is at (2, −3)
    lowest = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    there = torch.tensor([[1.0, 5.0]], dtype=torch.float64)
    assert above_minimum(lowest, target).item() == 0
    apart = quadratic(there, target) - quadratic(lowest, target)
    assert above_minimum(there, target).item() == pytest.approx(apart.item())


def test_golden_pareto_sizes_are_kept_and_capped() -> None:
    found = ParetoSynthetic(clients=50, samples=100, holdout=0.0).build(Streams(1))
    assert found.sizes.sum() == 5000
    assert found.sizes.min() >= 10
    assert found.sizes.max() <= 1.05 * 20 * np.median(found.sizes)
    assert found.sizes.max() > 5 * np.median(found.sizes)


def test_property_iid_clients_see_the_same_inputs_and_others_their_own() -> None:
    def furthest_mean(iid: bool) -> float:
        found = ParetoSynthetic(clients=10, samples=200, iid=iid, cap=2.0).build(Streams(2))
        assert isinstance(found.train, Held)
        parts = np.split(found.train.x.numpy(), np.cumsum(found.sizes)[:-1])
        return max(float(np.linalg.norm(part.mean(axis=0))) for part in parts)

    assert furthest_mean(iid=True) < 1.0  # ‖mean‖² ≈ Σ j^−1.2 / n
    assert furthest_mean(iid=False) > 5.0  # v_k ~ N(B_k, 1) in 60 dimensions


def test_contract_regions_do_not_overlap_and_one_linear_model_is_right() -> None:
    found = Regions(clients=3, dim=2, samples=50, server_samples=20).build(Streams(0))
    assert found.server is not None
    assert len(found.server) == 20
    held, test = found.train, found.test
    assert isinstance(held, Held)
    assert test is not None
    offsets = np.cumsum(found.sizes)
    for client, (start, end) in enumerate(zip([0, *offsets[:-1]], offsets, strict=True)):
        rows = held.order[start:end].long() if held.order is not None else slice(start, end)
        outside = torch.ones(6, dtype=torch.bool)
        outside[2 * client : 2 * client + 2] = False
        assert (held.x[rows][:, outside] == 0).all()
        mine = (test.x[:, ~outside] != 0).any(1)
        x, y = test.x[mine][:, ~outside].numpy(), test.y[mine].numpy()
        turns = [np.array([np.cos(a), np.sin(a)]) for a in np.linspace(0, 2 * np.pi, 721)]
        assert max(((x @ w > 0) == y).mean() for w in turns) > 0.99


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomQuadratics(curvature=(0.0, 1.0)), r"needs curvature > 0; got 0\.0"),
        (lambda: RandomQuadratics(target=(1.0, 0.0)), r"target\[0\] <= target\[1\]"),
        (lambda: ParetoSynthetic(samples=5), "needs samples >= 10"),
        (lambda: ParetoSynthetic(cap=0.5), "cap >= 1"),
        (lambda: Regions(dim=0), "needs dim >= 1"),
    ],
)
def test_error_an_impossible_setting_is_named(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
