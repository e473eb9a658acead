"""What each attack sends, worked by hand."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.attack_scenes import ATTACKS, FORGERS, scene
from turnout.attacks import (
    FreeRider,
    Gaussian,
    InnerProduct,
    LabelFlip,
    LittleIsEnough,
    ModelReplacement,
    NaN,
    ScaledUpdate,
    SignFlip,
)
from turnout.attacks.attack import drawn_attackers
from turnout.attacks.little_is_enough import largest_shift
from turnout.catalogue import catalogue
from turnout.errors import ConfigError
from turnout.streams import Streams

DELTA = [[1.0, 2.0], [3.0, -4.0], [5.0, 6.0], [-1.0, 0.0]]
HOSTILE = [False, True, False, True]
every_forger = pytest.mark.parametrize("rule", FORGERS.values(), ids=FORGERS.keys())
every_attack = pytest.mark.parametrize("rule", ATTACKS.values(), ids=ATTACKS.keys())


def test_contract_every_attack_of_the_catalogue_is_here() -> None:
    assert catalogue("attack") == ATTACKS


@every_forger
def test_contract_one_row_per_attacker_and_nothing_is_changed_in_place(rule: type[Any]) -> None:
    seen = scene(DELTA, HOSTILE)
    rows = rule(fraction=0.5).forge(seen)
    assert rows.shape == (2, 2)
    assert rows.dtype == seen.delta.dtype
    assert seen.delta.tolist() == DELTA
    assert seen.model.tolist() == [1.0, 1.0]


@every_forger
def test_contract_a_cohort_of_attackers_only_still_answers(rule: type[Any]) -> None:
    rows = rule(fraction=1.0).forge(scene(DELTA, [True] * 4))
    assert rows.shape == (4, 2)
    assert rule is NaN or torch.isfinite(rows).all()


@pytest.mark.parametrize("rule", [SignFlip, ScaledUpdate, Gaussian, NaN, FreeRider], ids=lambda rule: rule.__name__)
def test_contract_one_that_does_not_collude_sends_the_same_whoever_else_answers(rule: type[Any]) -> None:
    attack = rule(fraction=0.5)
    together = attack.forge(scene(DELTA, HOSTILE, clients=[2, 5, 6, 9]))[1]
    alone = attack.forge(scene(DELTA[3:], [True], clients=[9]))[0]
    assert torch.equal(together, alone) or rule is NaN


def test_golden_a_flipped_sign() -> None:
    assert SignFlip(fraction=0.5).forge(scene(DELTA, HOSTILE)).tolist() == [[-3.0, 4.0], [1.0, 0.0]]
    assert SignFlip(fraction=0.5, scale=4.0).forge(scene(DELTA, HOSTILE)).tolist() == [[-12.0, 16.0], [4.0, 0.0]]


def test_golden_a_scaled_update() -> None:
    assert ScaledUpdate(fraction=0.5).forge(scene(DELTA, HOSTILE)).tolist() == [[30.0, -40.0], [-10.0, 0.0]]
    assert ScaledUpdate(fraction=0.5, scale=2.0).forge(scene(DELTA, HOSTILE)).tolist() == [[6.0, -8.0], [-2.0, 0.0]]


def test_golden_noise_is_keyed_by_round_and_client() -> None:
    rows = Gaussian(fraction=0.5, std=3.0).forge(scene(DELTA, HOSTILE, round=7, seed=2))
    for client, row in zip((1, 3), rows, strict=True):
        assert row.tolist() == (3.0 * Streams(2).generator("attack", 7, client).standard_normal(2)).tolist()


def test_property_noise_has_the_deviation_asked_for() -> None:
    rows = Gaussian(fraction=0.5, std=0.5).forge(scene(np.zeros((4, 20_000)), HOSTILE))
    assert rows.std().item() == pytest.approx(0.5, rel=0.02)
    assert abs(rows.mean().item()) < 0.01
    assert abs(np.corrcoef(rows.numpy())[0, 1]) < 0.03


def test_golden_a_free_rider_sends_nothing_or_noise_that_fades() -> None:
    assert FreeRider(fraction=0.5).forge(scene(DELTA, HOSTILE)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    disguised = FreeRider(fraction=0.5, noise=0.1, decay=2.0).forge(scene(DELTA, HOSTILE, round=5))
    drawn = Streams(0).generator("attack", 5, 3).standard_normal(2)
    assert disguised[1].tolist() == pytest.approx((0.1 / 25 * drawn).tolist())


def test_identity_a_free_rider_whose_noise_does_not_fade_is_gaussian() -> None:
    seen = scene(DELTA, HOSTILE, round=9)
    rider = FreeRider(fraction=0.5, noise=0.7, decay=0.0).forge(seen)
    assert torch.equal(rider, Gaussian(fraction=0.5, std=0.7).forge(seen))


def test_golden_the_honest_mean_is_turned() -> None:
    rows = InnerProduct(fraction=0.5, scale=0.5).forge(scene(DELTA, HOSTILE))
    assert rows.tolist() == [[-1.5, -2.0]] * 2  # the honest mean is (3, 4)


def test_property_a_small_turn_keeps_the_mean_forward_and_a_large_one_does_not() -> None:
    # two honest rows and one attacker: the mean's product with the honest mean is (2 − ε)/3 of its square
    for scale, is_forward in ((1.9, True), (2.1, False)):
        seen = scene([[3.0, 4.0], [1.0, 2.0], [9.0, 9.0]], [False, False, True])
        forged = InnerProduct(fraction=0.3, scale=scale).forge(seen)
        mean = torch.cat([seen.delta[:2], forged]).mean(0)
        assert (mean @ seen.delta[:2].mean(0) > 0) == is_forward


def test_identity_colluders_among_clients_who_are_alike_flip_their_sign() -> None:
    seen = scene([[2.0, -1.0]] * 4, HOSTILE)
    assert torch.equal(InnerProduct(fraction=0.5, scale=3.0).forge(seen), SignFlip(fraction=0.5, scale=3.0).forge(seen))


def test_golden_rows_that_are_not_finite_do_not_enter_what_colluders_know() -> None:
    seen = scene([[1.0, 1.0], [np.nan, 1.0], [3.0, 5.0], [0.0, 0.0]], [False, False, False, True])
    assert InnerProduct(fraction=0.3, scale=1.0).forge(seen).tolist() == [[-2.0, -3.0]]


def test_golden_a_little_is_enough() -> None:
    # honest (1, 2) and (5, 6): mean (3, 4), deviation (2, 2)
    rows = LittleIsEnough(fraction=0.5, shift=0.25).forge(scene(DELTA, HOSTILE))
    assert rows.tolist() == [[2.5, 3.5]] * 2


def test_golden_how_far_off_a_majority_still_nods() -> None:
    # n = 50, m = 24: s = 26 − 24 = 2 of the 26 honest lie farther out, so Φ(z) = 24/26
    assert largest_shift(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
    assert largest_shift(10, 4) == pytest.approx(NormalDist().inv_cdf(4 / 6))
    assert largest_shift(3, 1) == 0.0  # s = 1 of 2: a half, no shift
    assert largest_shift(10, 6) == pytest.approx(NormalDist().inv_cdf(3 / 4))  # a majority: s stays 1
    assert largest_shift(4, 4) == 0.0  # nobody is honest


def test_identity_no_shift_is_the_honest_mean() -> None:
    seen = scene(DELTA, HOSTILE)
    assert LittleIsEnough(fraction=0.5, shift=0.0).forge(seen).tolist() == [[3.0, 4.0]] * 2


def test_golden_replacing_the_model() -> None:
    to_zero = ModelReplacement(fraction=0.5, target="zero").forge(scene(DELTA, HOSTILE, model=[10.0, -4.0]))
    assert to_zero.tolist() == [[20.0, -8.0]] * 2  # four answers, two attackers: γ = 2
    boosted = ModelReplacement(fraction=0.5, target="zero", boost=3.0).forge(scene(DELTA, HOSTILE, model=[10.0, -4.0]))
    assert boosted.tolist() == [[30.0, -12.0]] * 2
    flipped = ModelReplacement(fraction=0.5).forge(scene(DELTA, HOSTILE))
    assert flipped.tolist() == [[6.0, -8.0], [-2.0, 0.0]]


@given(count=st.integers(1, 6), attackers=st.integers(1, 6))
def test_property_an_equal_mean_lands_on_the_target_when_nobody_else_moves(count: int, attackers: int) -> None:
    hostile = [True] * attackers + [False] * count
    seen = scene(np.zeros((len(hostile), 2)), hostile, model=[10.0, -4.0])
    sent = torch.cat([ModelReplacement(fraction=0.5, target="zero").forge(seen), seen.delta[attackers:]])
    assert torch.allclose(seen.model - sent.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-12)


def test_golden_labels_are_reversed_or_mapped() -> None:
    labels = torch.tensor([0, 1, 2, 4, 0])
    assert LabelFlip(fraction=0.5).relabel(labels, 5).tolist() == [4, 3, 2, 0, 4]
    assert LabelFlip(fraction=0.5, labels=(1, 1, 2, 3, 0)).relabel(labels, 5).tolist() == [1, 1, 2, 0, 1]
    assert ModelReplacement(fraction=0.5).relabel(labels, 5).tolist() == [4, 3, 2, 0, 4]


def test_error_a_map_that_is_not_one_names_the_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"class from 0 to 2 for each of 3 classes; got \[0, 3\]. Change attack\.labels"
    ):
        LabelFlip(fraction=0.5, labels=(0, 3)).relabel(torch.tensor([0]), 3)


@given(seed=st.integers(0, 2**40), few=st.floats(0, 1), more=st.floats(0, 1), clients=st.integers(1, 60))
def test_property_who_attacks_is_keyed_and_a_larger_share_holds_the_smaller(
    seed: int, few: float, more: float, clients: int
) -> None:
    few, more = min(few, more), max(few, more)
    small, large = (drawn_attackers(seed, clients, fraction) for fraction in (few, more))
    assert small.sum() == round(few * clients)
    assert large.sum() == round(more * clients)
    assert (large | ~small).all()


@every_attack
def test_contract_who_attacks_does_not_depend_on_the_attack(rule: type[Any]) -> None:
    assert np.array_equal(rule(fraction=0.3).attackers(40, Streams(5)), drawn_attackers(5, 40, 0.3))
    assert np.flatnonzero(rule(clients=(3, 1)).attackers(5, Streams(5))).tolist() == [1, 3]


def test_property_another_seed_is_another_crowd() -> None:
    crowds = {tuple(np.flatnonzero(drawn_attackers(seed, 30, 0.2))) for seed in range(20)}
    assert len(crowds) > 15
    share = np.mean([drawn_attackers(seed, 30, 0.2) for seed in range(400)], axis=0)
    assert share.min() > 0.1
    assert share.max() < 0.3


@every_attack
def test_error_who_attacks_must_be_said_once(rule: type[Any]) -> None:
    name = rule.__name__
    with pytest.raises(ConfigError, match=rf"{name} needs fraction or clients; got neither. Set attack\.fraction"):
        rule()
    with pytest.raises(ConfigError, match=rf"{name} needs fraction or clients; got both"):
        rule(fraction=0.2, clients=(1,))
    with pytest.raises(ConfigError, match=rf"{name} needs fraction in \[0, 1\]; got 1.5. Change attack\.fraction"):
        rule(fraction=1.5)
    with pytest.raises(ConfigError, match=rf"{name} needs each of its clients once; got \[1, 1\]"):
        rule(clients=(1, 1))


@pytest.mark.parametrize(
    ("rule", "setting", "value", "need"),
    [
        (SignFlip, "scale", 0.0, "> 0"),
        (ScaledUpdate, "scale", -1.0, "> 0"),
        (Gaussian, "std", float("inf"), "<= 1,000,000,000,000"),
        (InnerProduct, "scale", float("nan"), "to be a number"),
        (ModelReplacement, "boost", 0.0, "> 0"),
        (FreeRider, "noise", -0.1, ">= 0"),
        (FreeRider, "decay", -1.0, ">= 0"),
        (LittleIsEnough, "shift", -1.0, ">= 0"),
    ],
)
def test_error_a_strength_that_cannot_be_names_the_setting(
    rule: type[Any], setting: str, value: float, need: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{rule.__name__} needs {setting} {need}; got .*Change attack\.{setting}"):
        rule(fraction=0.2, **{setting: value})
