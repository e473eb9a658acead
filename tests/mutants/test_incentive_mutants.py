"""Published mistakes in rules that weigh updates by losses, and in rules for several models: each must be caught."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import incentive_checks, several_checks
from turnout.aggregation import agnostic, appeal, q_ffl, tilted
from turnout.assignment import drift, lowest_loss
from turnout.assignment.drift import Found
from turnout.coordinator import several
from turnout.coordinator.advance import advance
from turnout.requests import Probe
from turnout.world.simulation import appeal as world_appeal
from turnout.world.simulation import simulation


def logistic(z: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-z))


def no_derivative(losses: Any, required: Any, sharpness: float = 1.0) -> Any:
    """σ(z) in place of its derivative."""
    return logistic(sharpness * (losses - required))


def twice_the_distance(losses: Any, required: Any, sharpness: float = 1.0) -> Any:
    """σ(2z)(1 − σ(2z))."""
    return no_derivative(losses, required, 2 * sharpness) * (1 - no_derivative(losses, required, 2 * sharpness))


def negative_above_zero(losses: Any, required: Any, sharpness: float = 1.0) -> Any:
    """2σ(2z)(1 − 2σ(2z))."""
    double = 2 * no_derivative(losses, required, 2 * sharpness)
    return double * (1 - double)


def uphill(rows: Any, coefficients: Any) -> Any:
    """The update with the other sign."""
    return -torch.from_numpy(coefficients) @ rows.delta


def without_curvature(weights: Any, losses: Any, square_norms: Any, lr: float, power: float) -> Any:
    """q-FFL without the term of the Lipschitz constant."""
    scaled = weights * losses**power
    return scaled / scaled.sum()


def power_applied_twice(weights: Any, losses: Any, square_norms: Any, lr: float, power: float) -> Any:
    """F^q · F^q in place of F^q."""
    scaled = weights * losses ** (2 * power)
    return scaled / (scaled + power * weights * losses ** (2 * power - 1) * square_norms / lr).sum()


def overflowing(weights: Any, losses: Any, tilt: float) -> Any:
    """exp(t F) without the largest subtracted."""
    with np.errstate(all="ignore"):
        raw = weights * np.exp(tilt * losses)
        return raw / raw.sum()


def off_the_simplex(mixture: Any, clients: Any, losses: Any, rate: float) -> Any:
    """λ + γ F, not projected."""
    new = mixture.copy()
    new[clients] += rate * losses
    return new


WEIGHTS = {
    "MaxFL without the derivative": (appeal, "appeal_weights", no_derivative),
    "MaxFL at twice the distance": (appeal, "appeal_weights", twice_the_distance),
    "MaxFL with negative weights": (appeal, "appeal_weights", negative_above_zero),
    "MaxFL uphill": (appeal, "weighted_direction", uphill),
    "q-FFL without the Lipschitz term": (q_ffl, "fair_coefficients", without_curvature),
    "q-FFL with the power twice": (q_ffl, "fair_coefficients", power_applied_twice),
    "agnostic without a projection": (agnostic, "ascended", off_the_simplex),
}
CHECKS = {
    appeal: incentive_checks.assert_one_step_of_three_clients,
    q_ffl: incentive_checks.assert_a_step_of_q_ffl,
    agnostic: incentive_checks.assert_two_steps_of_agnostic,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_contract_a_wrong_weight_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, part, mutant = WEIGHTS[name]
    CHECKS[module]()
    monkeypatch.setattr(module, part, mutant)
    with pytest.raises(AssertionError):
        CHECKS[module]()


def test_contract_a_tilt_that_overflows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    check = incentive_checks.assert_the_largest_tilt_is_the_worst_client_and_the_smallest_the_best
    check()
    monkeypatch.setattr(tilted, "tilted_weights", overflowing)
    with pytest.raises(AssertionError):
        check()


def test_contract_a_step_without_eps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    check = incentive_checks.assert_hopeless_clients_vanish_and_a_large_eps_stops
    check()
    whole = appeal.appeal_weights
    monkeypatch.setattr(appeal, "appeal_weights", lambda *values: whole(*values) / whole(*values).sum())
    with pytest.raises(AssertionError):
        check()


def test_contract_a_formula_without_eps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    check = incentive_checks.assert_hopeless_clients_vanish_and_a_large_eps_stops
    monkeypatch.setattr(appeal.Appeal, "eps", property(lambda self: 0.0, lambda self, value: None))
    with pytest.raises(AssertionError):
        check()


def required_on_holdouts(request: Any, sizes: Any, holdout_sizes: Any) -> Any:
    """ρ_k on the client's hold-out."""
    alone = yield from world_appeal.losses_alone(replace(request, on_holdouts=("loss",)), sizes, holdout_sizes)
    return replace(alone, loss=alone.on_holdouts["loss"])


def required_on_a_batch(request: Any, sizes: Any, holdout_sizes: Any) -> Any:
    """ρ_k on one sample."""
    alone = yield from world_appeal.losses_alone(request, sizes, holdout_sizes)
    probe = Probe(round=1, streams=request.streams, model=request.model, buffers=None, clients=request.clients,
                  what="loss", batch_size=1)  # fmt: skip
    return replace(alone, loss=(yield probe).loss)


def loss_on_a_batch(clients: Any, ask: Any) -> Any:
    """F_k(x) on one sample, and not where ρ_k was measured."""
    return (yield ask.losses(clients, 1)).loss


@pytest.mark.parametrize(
    ("module", "part", "mutant"),
    [
        (simulation, "losses_alone", required_on_holdouts),
        (simulation, "losses_alone", required_on_a_batch),
        (appeal, "cohort_losses", loss_on_a_batch),
    ],
)
def test_contract_a_requirement_measured_on_other_data_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: Any, part: str, mutant: Any
) -> None:
    check = incentive_checks.assert_what_clients_require_is_measured_where_the_loss_is
    monkeypatch.setattr(module, part, mutant)
    with pytest.raises(AssertionError):
        check()


def highest(losses: Any) -> Any:
    """The model with the highest loss."""
    return np.argmax(losses, axis=0)


def last_of_equals(losses: Any) -> Any:
    """Ties go to the largest index."""
    return len(losses) - 1 - np.argmin(losses[::-1], axis=0)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (highest, several_checks.assert_one_round_by_hand),
        (last_of_equals, several_checks.assert_equal_initial_models_are_noted_and_ties_go_to_the_first),
    ],
)
def test_contract_a_wrong_choice_of_ifca_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Any], check: Callable[[], None]
) -> None:
    check()
    monkeypatch.setattr(lowest_loss, "lowest", mutant)
    with pytest.raises(AssertionError):
        check()


def on_test_samples(models: Any, clients: Any, ask: Any, batch_size: Any, blocks: Any = None) -> Any:
    """Losses on the samples that a client holds out."""
    columns = []
    for client in clients.tolist():
        scored = yield ask.score(models, on="client", client=client)
        columns.append(scored.loss)
    return np.stack(columns, axis=1)


def test_contract_a_choice_on_test_samples_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowest_loss, "losses_at", on_test_samples)
    with pytest.raises(AssertionError):
        several_checks.assert_clients_choose_on_their_training_samples()


def test_contract_an_average_over_the_clients_of_all_models_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = advance

    def over_everyone(plan: Any, view: Any, own: Any, collected: Any, ask: Any, anyone_up: bool) -> Any:
        before, share = own.model, len(collected.asked) / view.population.num_clients
        metrics = yield from whole(plan, view, own, collected, ask, anyone_up)
        own.model = before + share * (own.model - before)
        return metrics

    monkeypatch.setattr(several, "advance", over_everyone)
    with pytest.raises(AssertionError):
        several_checks.assert_one_round_by_hand()


def test_contract_a_distance_below_zero_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def signed(scores: Any, swapped: bool = False) -> Any:
        loss = np.diag(scores)[:, None] - (scores.T if swapped else scores)
        return np.maximum(loss, loss.T)

    monkeypatch.setattr(drift, "distances", signed)
    with pytest.raises(AssertionError):
        several_checks.assert_distances_by_hand()


def by_clients(self: Found, group: list[int]) -> None:
    """Merge with the number of clients as weights, not of their blocks."""
    now = self.blocks[:, self.step]
    weights = self.models.new_tensor([int((now == m).sum()) for m in group])
    self.models = self.models.clone()
    self.models[group[0]] = (weights / weights.sum()) @ self.models[group]
    self.blocks[np.isin(self.blocks, group)] = group[0]


def at_random(self: Found, slot: int, like: int) -> None:
    """Start a model anew, not as a copy."""
    self.models = self.models.clone()
    self.models[slot] = torch.randn(self.models[slot].shape, generator=torch.Generator().manual_seed(0))
    self.blocks[self.blocks == slot] = drift.NOBODY_USES
    self.fresh.append(slot)


def with_everyone(self: Found, alone: Any) -> Any:
    """Candidates with the models of clients that train alone."""
    used = np.unique(self.blocks[:, : self.step])
    return used[used >= 0]


@pytest.mark.parametrize(
    ("part", "mutant", "check"),
    [
        (
            "merge",
            by_clients,
            several_checks.assert_a_merger_weighs_models_by_their_blocks_and_keeps_the_number_of_blocks,
        ),
        ("start", at_random, several_checks.assert_a_new_model_is_a_copy_and_forgets_who_used_its_slot),
        ("candidates", with_everyone, several_checks.assert_models_of_clients_that_train_alone_are_no_candidates),
    ],
)
def test_contract_a_mistake_of_feddrift_is_caught(
    monkeypatch: pytest.MonkeyPatch, part: str, mutant: Callable[..., Any], check: Callable[[], None]
) -> None:
    check()
    monkeypatch.setattr(Found, part, mutant)
    with pytest.raises(AssertionError):
        check()


def test_contract_a_baseline_of_another_time_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    several_checks.assert_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained(tmp_path)
    monkeypatch.setattr(drift.Drift, "_after", lambda self, found, clients, ask, blocks: _chance(clients))
    with pytest.raises(AssertionError):
        several_checks.assert_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained(tmp_path)


def _chance(clients: Any) -> Any:
    """The accuracy of the untrained model in place of the trained one's."""
    yield from ()
    return np.full(len(clients), 0.5)
