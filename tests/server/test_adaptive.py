"""FedAdagrad, FedAdam and FedYogi: identities, PyTorch as a witness, and steps worked by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.server_checks import assert_agrees_with_torch_adam, assert_constant_direction_follows_adam
from tests.support.server_steps import close, followed
from turnout.errors import ConfigError
from turnout.server import FedAdagrad, FedAdam, FedYogi
from turnout.server.fedyogi import yogi_second_moment

SIZES = st.floats(-10, 10).filter(lambda v: abs(v) > 1e-6)
TWO_MEANS = [FedAdam, FedYogi]


@pytest.mark.parametrize("bias_correction", [False, True])
def test_golden_fedadam_under_a_constant_direction(bias_correction: bool) -> None:
    assert_constant_direction_follows_adam(FedAdam(bias_correction=bias_correction))


def test_identity_fedadam_with_bias_correction_is_torchs_adam() -> None:
    assert_agrees_with_torch_adam(FedAdam(bias_correction=True))


@given(st.lists(SIZES, min_size=3, max_size=3), st.booleans(), st.floats(0, 0.99), st.floats(0, 0.999))
def test_identity_the_first_step_of_yogi_is_adams(
    direction: list[float], bias_correction: bool, beta1: float, beta2: float
) -> None:
    settings: dict[str, Any] = {"beta1": beta1, "beta2": beta2, "bias_correction": bias_correction}
    (adam,), (yogi,) = (followed(rule(**settings), [direction]) for rule in TWO_MEANS)
    assert close(adam, yogi)


def test_property_the_second_step_of_yogi_is_not_adams() -> None:
    adam, yogi = (followed(rule(), [[1.0], [0.1]])[-1] for rule in TWO_MEANS)
    assert abs(float(adam - yogi)) > 1e-5


@given(SIZES, st.floats(1e-4, 1), st.floats(0, 0.9))
def test_identity_fedadagrad_under_a_constant_direction_divides_by_the_root_of_the_step(
    d: float, adaptivity: float, beta1: float
) -> None:
    rule = FedAdagrad(adaptivity=adaptivity, beta1=beta1)
    at = 0.0
    for k, model in enumerate(followed(rule, [[d]] * 5), start=1):
        at -= rule.lr * (1 - beta1**k) * d / (abs(d) * math.sqrt(k) + adaptivity)
        assert float(model) == pytest.approx(at, rel=1e-12)


def test_golden_yogi_moves_its_divisor_by_a_share_of_the_newest_square() -> None:
    # β2 = ¾. v₀ = 0, u = 2: v = 0 + ¼·4 = 1; u = ½: v = 1 − ¼·¼ = 15/16; u² = v: stays
    first = yogi_second_moment(torch.zeros(1, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64), 0.75)
    assert first.tolist() == [1.0]
    assert yogi_second_moment(first, torch.tensor([0.5], dtype=torch.float64), 0.75).tolist() == [15 / 16]
    assert yogi_second_moment(first, torch.tensor([1.0], dtype=torch.float64), 0.75).tolist() == [1.0]


@pytest.mark.parametrize("rule", [FedAdagrad, *TWO_MEANS])
def test_golden_an_initial_accumulator_slows_the_first_step(rule: type[Any]) -> None:
    # u = 3, β1 = 0, v₀ = 16: Adagrad v = 25; Adam (β2 = ½) v = ½·16 + ½·9 = 12½; Yogi v = 16 − ½·9 = 11½
    settings = {"lr": 1.0, "beta1": 0.0, "adaptivity": 1.0, "initial_accumulator": 16.0}
    second = {FedAdagrad: 25.0, FedAdam: 12.5, FedYogi: 11.5}[rule]
    if rule is not FedAdagrad:
        settings["beta2"] = 0.5
    (model,) = followed(rule(**settings), [[3.0]])
    assert float(model) == pytest.approx(-3 / (math.sqrt(second) + 1), rel=1e-14)


@given(st.lists(SIZES, min_size=1, max_size=8), st.sampled_from([FedAdagrad, *TWO_MEANS]))
def test_property_the_divisor_never_turns_negative_and_the_model_stays_finite(
    directions: list[float], rule: type[Any]
) -> None:
    models = followed(rule(), [[d] for d in directions])
    assert all(torch.isfinite(m).all() for m in models)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAdam(lr=0), r"FedAdam needs lr > 0; got 0\. Change server\.lr"),
        (lambda: FedYogi(beta1=1), r"FedYogi needs beta1 in \[0, 1\); got 1\. Change server\.beta1"),
        (lambda: FedAdam(beta2=1), r"FedAdam needs beta2 in \[0, 1\); got 1\. Change server\.beta2"),
        (lambda: FedAdagrad(adaptivity=0), r"FedAdagrad needs adaptivity > 0; got 0\. Change server\.adaptivity"),
        (lambda: FedAdagrad(initial_accumulator=-1), r"initial_accumulator >= 0; got -1"),
        (
            lambda: FedAdam(bias_correction=True, initial_accumulator=1e-6),
            r"initial_accumulator = 0 with bias_correction.*got 1e-06\. Change server\.initial_accumulator",
        ),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
