"""Mistakes that others published in narrow models: each is made here, and must be caught."""

from collections.abc import Callable
from dataclasses import replace
from math import floor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support import width_checks as checks
from turnout.array_types import Floats, Ids
from turnout.engine import Sequential
from turnout.models.training_modules import MaskedOutputs, ScaledLinear
from turnout.submodels import Parts, Submodel
from turnout.width import Nested, Ordered, Rolling, nested, ordered, rolling
from turnout.width.rates import count_of
from turnout.world.simulation import widths as simulated

Check = Callable[[], Any]


def _counts_round_down(rate: float, size: int) -> int:
    return max(1, floor(rate * size))


def _over_all_clients(parts: Parts, clients: Ids, coefficients: Floats) -> Tensor:
    """The plain sum: units that few train move too little."""
    return torch.ones(parts.size, dtype=torch.float64)


def _random_first(rule: Nested, group: int, size: int, rate: float, clients: Ids, view: Any) -> Ids:
    """Random units of a size, as in an early version of the authors' code."""
    rng = np.random.default_rng(view.round)
    return np.sort(rng.permutation(size)[: count_of(rate, size)])


def _not_around(size: int, count: int, offset: int) -> Ids:
    """A window that stops at the last unit."""
    return np.arange(min(offset % size, size - count), min(offset % size, size - count) + count)


def _per_client(rule: Rolling, group: int, size: int, rate: float, clients: Ids, view: Any) -> Ids:
    """A window that is elsewhere for every client."""
    offsets = (view.round - 1) * rule.stride + clients
    return np.stack([rolling.window(size, count_of(rate, size), offset) for offset in offsets])


def _once_a_round(rule: Ordered, clients: Ids, rates: Floats, steps: int, view: Any) -> Floats:
    """One rate for all local steps of a round."""
    return np.repeat(_step_rates(rule, clients, rates, 1, view), steps, axis=1)


def _whole_bytes(parts: Parts, clients: Ids) -> Ids:
    return np.full(len(clients), parts.size)


def _towards_zero(parts: Parts, clients: Ids, coefficients: Floats) -> Tensor:
    """What nobody trains counts as zero: everything is divided by the weight of all clients."""
    return torch.where(_balance(parts, clients, coefficients) == 0, 1e9, _balance(parts, clients, coefficients))


def _decay_everywhere(merged: Any, places: Ids, submodels: list[Submodel], answer: Any) -> None:
    """Clients train the whole model with masked gradients, and weight decay acts on what is masked, too."""
    _add(merged, places, submodels, answer)
    for place, submodel in zip(places, submodels, strict=True):
        outside = merged.fit.model.clone()
        outside[submodel.columns] = 0.0
        merged.reduced += 0.1 * float(merged.fit.coefficients[place]) * outside


def _always_scaled(layer: ScaledLinear, x: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, layer.weight, layer.bias) / layer.share


def _unscaled(layer: ScaledLinear, x: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def _left_out(module: MaskedOutputs, x: Tensor) -> Tensor:
    """Logits of −∞ in place of 0."""
    out: Tensor = module.module(x) + torch.log(module.factors.clamp(min=1e-30))
    return out


def _with_decay(answer: Any, parts: Parts, places: Ids, submodels: Any) -> Any:
    """What weight decay does to the rows of masked labels is sent."""
    assert parts.labels is not None
    return replace(answer, delta=answer.delta[:, parts.labels.held.shape[1] :])


_balance, _step_rates, _add = Parts.balance, Ordered.step_rates, simulated.Merged.add
one_round = checks.assert_one_round_is_the_mean_of_what_clients_do_alone
in_training = checks.assert_the_scaler_divides_hidden_outputs_in_training
one_step = checks.assert_one_masked_step_is_that_of_plain_autograd


def _each_unit_is_covered_equally_often() -> None:
    seen = np.zeros(6, dtype=int)
    for round in range(1, 7):
        seen[Rolling(rates=(0.5,)).units(0, 6, 0.5, np.arange(2), checks.view(round))] += 1
    assert (seen == 3).all()


def _counts_are_rounded_up() -> None:
    for rule in (Nested(rates=(0.3,)), Ordered(rates=(0.3,))):
        assert len(rule.units(0, 8, 0.3, np.arange(2), checks.view())) == 3


def _sequential(check: Callable[..., None]) -> Check:
    return lambda: check(Sequential())


MUTANTS: dict[str, tuple[Any, str, Any, Check]] = {
    "random units": (Nested, "units", _random_first, checks.assert_a_window_that_stands_still_is_nested),
    "divided by all clients": (Parts, "balance", _over_all_clients, one_round),
    "what nobody trains moves": (
        Parts,
        "balance",
        _towards_zero,
        checks.assert_a_parameter_is_averaged_over_the_clients_that_train_it,
    ),
    "decay outside the slice": (
        simulated.Merged,
        "add",
        _decay_everywhere,
        checks.assert_decay_and_momentum_act_inside_the_slice_alone,
    ),
    "whole bytes": (Parts, "numbers", _whole_bytes, checks.assert_bytes_and_gradients_count_the_slice),
    "scaled evaluation": (ScaledLinear, "forward", _always_scaled, checks.assert_evaluation_is_not_scaled),
    "no scaler": (ScaledLinear, "forward", _unscaled, _sequential(in_training)),
    "no way around": (rolling, "window", _not_around, _each_unit_is_covered_equally_often),
    "a window each": (Rolling, "units", _per_client, checks.assert_clients_of_a_round_share_the_window),
    "one width a round": (Ordered, "step_rates", _once_a_round, checks.assert_steps_draw_every_rate_equally_often),
    "rounded down, nested": (
        nested,
        "count_of",
        _counts_round_down,
        _counts_are_rounded_up,
    ),
    "rounded down, ordered": (
        ordered,
        "count_of",
        _counts_round_down,
        _counts_are_rounded_up,
    ),
    "logits left out": (MaskedOutputs, "forward", _left_out, _sequential(one_step)),
    "decay of masked rows": (simulated, "_unmasked", _with_decay, _sequential(one_step)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_a_published_mistake_of_narrow_models_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, part, mutant, check = MUTANTS[name]
    check()
    monkeypatch.setattr(place, part, mutant)
    with pytest.raises(AssertionError):
        check()
