"""Mistakes that others published in server rules and robust aggregation: each is made here, and must be caught."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.support.robust_checks import assert_scores_sum_the_nearest_others, assert_the_root_set_decides
from tests.support.server_checks import (
    assert_agrees_with_torch_adam,
    assert_constant_direction_follows_adam,
    assert_orthogonal_changes_are_stretched_by_half_their_number,
    assert_rate_is_at_least_one,
    assert_the_mean_of_two_iterates_is_measured,
)
from turnout.aggregation import FLTrust, fltrust
from turnout.array_types import Floats, Ids
from turnout.protocols import Moved
from turnout.rows import Step
from turnout.server import FedAdam, FedExP, fedexp
from turnout.server import moments as shared
from turnout.server.moments import Moments


def one_step_late(moments: Moments, beta1: float, beta2: float) -> Moments:
    """The correction with exponent t + 1."""
    late = moments.steps + 1
    return Moments(moments.first / (1 - beta1**late), moments.second / (1 - beta2**late), moments.steps)


def first_round_for_ever(moments: Moments, beta1: float, beta2: float) -> Moments:
    """The first round's correction, whatever the round."""
    return Moments(moments.first / (1 - beta1), moments.second / (1 - beta2), moments.steps)


def inside_the_root(moments: Moments, adaptivity: float) -> Tensor:
    """√(v + τ_a) in place of √v + τ_a."""
    return moments.first / (moments.second + adaptivity).sqrt()


@pytest.mark.parametrize("check", [assert_constant_direction_follows_adam, assert_agrees_with_torch_adam])
@pytest.mark.parametrize(
    ("part", "mutant"),
    [
        ("bias_corrected", one_step_late),
        ("bias_corrected", first_round_for_ever),
        ("adaptive_direction", inside_the_root),
    ],
)
def test_contract_a_misplaced_correction_of_fedadam_is_caught(
    monkeypatch: pytest.MonkeyPatch, check: Callable[..., Any], part: str, mutant: Callable[..., Any]
) -> None:
    rule = FedAdam(bias_correction=True)
    check(rule)
    monkeypatch.setattr(shared, part, mutant)
    with pytest.raises(AssertionError):
        check(rule)


def test_contract_a_root_around_eps_is_caught_without_correction_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "adaptive_direction", inside_the_root)
    with pytest.raises(AssertionError):
        assert_constant_direction_follows_adam(FedAdam())


def test_contract_fedexp_with_a_single_clients_norm_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one_client(coefficients: Floats, square_norms: Floats, mean_square: float, eps: float) -> float:
        result: float = max(1.0, float(coefficients @ square_norms) / (2 * (square_norms[0] + eps)))
        return result

    monkeypatch.setattr(fedexp, "extrapolation", of_one_client)
    with pytest.raises(AssertionError):
        assert_orthogonal_changes_are_stretched_by_half_their_number(FedExP(eps=0))


def test_contract_fedexp_with_the_mean_of_the_norms_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_all_clients(coefficients: Floats, square_norms: Floats, mean_square: float, eps: float) -> float:
        spread = float(coefficients @ square_norms)
        return max(1.0, spread / (2 * (spread + eps)))

    monkeypatch.setattr(fedexp, "extrapolation", of_all_clients)
    with pytest.raises(AssertionError):
        assert_orthogonal_changes_are_stretched_by_half_their_number(FedExP(eps=0))


def test_contract_fedexp_without_a_floor_of_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(coefficients: Floats, square_norms: Floats, mean_square: float, eps: float) -> float:
        return float(coefficients @ square_norms) / (2 * (mean_square + eps))

    monkeypatch.setattr(fedexp, "extrapolation", bare)
    with pytest.raises(AssertionError):
        assert_rate_is_at_least_one(FedExP(eps=1e-9))


def test_contract_fedexp_whose_average_is_the_last_iterate_twice_is_caught() -> None:
    class Forgetful(FedExP):
        def advance(self, model: Tensor, step: Step, memory: dict[Any, Any]) -> Moved:
            moved = FedExP.advance(self, model, step, memory)
            return replace(moved, evaluate=(moved.model + moved.model) / 2)

    with pytest.raises(AssertionError):
        assert_the_mean_of_two_iterates_is_measured(Forgetful(eps=0))


def test_contract_fltrust_with_the_clients_mean_for_a_root_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fltrust.trust_coefficients

    def by_the_majority(delta: Tensor, root: Tensor, multiplicity: Ids) -> tuple[Floats, Floats]:
        return honest(delta, delta.mean(0), multiplicity)

    monkeypatch.setattr(fltrust, "trust_coefficients", by_the_majority)
    with pytest.raises(AssertionError):
        assert_the_root_set_decides(FLTrust())


def test_contract_fltrust_that_keeps_the_clients_length_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fltrust.trust_coefficients

    def at_full_length(delta: Tensor, root: Tensor, multiplicity: Ids) -> tuple[Floats, Floats]:
        coefficients, trust = honest(delta, root, multiplicity)
        return coefficients * delta.norm(dim=1).numpy() / float(root.norm()), trust

    monkeypatch.setattr(fltrust, "trust_coefficients", at_full_length)
    with pytest.raises(AssertionError):
        assert_the_root_set_decides(FLTrust())


def test_contract_krum_that_counts_itself_as_a_neighbour_is_caught() -> None:
    def with_itself(distances: Floats, neighbours: int) -> Floats:
        result: Floats = np.sort(distances, axis=1)[:, :neighbours].sum(1)
        return result

    with pytest.raises(AssertionError):
        assert_scores_sum_the_nearest_others(with_itself)
