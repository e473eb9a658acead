"""What docs/privacy.md says, each sentence worked out from densities or by an accountant of another kind.

The densities are those of one coordinate in units of C: a client moves it by 1 at most, and the noise is N(0, z²).
"""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
import torch
from numpy import float64
from scipy.special import logsumexp

import turnout as to
from tests.support import aggregation_inputs as answers
from turnout.aggregation import Private
from turnout.aggregation.accounting import Sampling, epsilon, orders, round_divergences
from turnout.aggregation.private import bounded_mean
from turnout.array_types import Floats
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD
from turnout.protocols import Combined, Population, View
from turnout.selection import Poisson, Uniform
from turnout.streams import Streams
from turnout.study.run_factory import RunFactory, RunKey

DOCS = Path(__file__).parents[2] / "docs" / "privacy.md"
GRID = np.linspace(-60, 60, 240_001)  # steps of 0.0005, wide enough for the noise below


def mixture(centres: list[float], shares: list[float], z: float) -> Floats:
    """The logarithm of a mixture of normals of deviation z, on the grid."""
    parts = [math.log(s) - 0.5 * ((GRID - c) / z) ** 2 for c, s in zip(centres, shares, strict=True) if s > 0]
    return logsumexp(parts, axis=0) - math.log(z * math.sqrt(2 * math.pi))


def divergence(one: Floats, other: Floats, alpha: int) -> float:
    """The Rényi divergence of two densities, the larger of the two ways round."""
    step = GRID[1] - GRID[0]
    ways = (alpha * one + (1 - alpha) * other, alpha * other + (1 - alpha) * one)
    return max(float(logsumexp(way) + math.log(step)) / (alpha - 1) for way in ways)


def at(sampling: Sampling, alpha: int, z: float, rate: float = 1.0) -> float64:
    """What the accounting counts for a round, at this order."""
    result: float64 = round_divergences(sampling, z, rate)[orders(sampling).index(alpha)]
    return result


def drawn(values: list[float], size: int, z: float) -> Floats:
    """The density of the noisy sum over `size` of these clients, drawn evenly without replacement."""
    sums = [sum(some) for some in itertools.combinations(values, size)]
    return mixture(sums, [1 / len(sums)] * len(sums), z)


@pytest.mark.parametrize("z", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("alpha", [2, 5])
def test_golden_zeroing_out_a_client_of_a_known_cohort_costs_what_none_counts(z: float, alpha: int) -> None:
    assert divergence(mixture([1.0], [1], z), mixture([0.0], [1], z), alpha) == pytest.approx(at("none", alpha, z))


VALUES = [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("z", [0.7, 2.0])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_property_zeroing_out_a_client_costs_no_more_than_none_counts_however_many_are_drawn(
    z: float, size: int
) -> None:
    for others in itertools.combinations_with_replacement(VALUES, 2):
        with_it, without = drawn([*others, 1.0], size, z), drawn([*others, 0.0], size, z)
        assert divergence(with_it, without, 3) <= at("none", 3, z) + 1e-9


def test_golden_a_client_more_or_less_among_a_fixed_number_drawn_costs_more_than_none_counts() -> None:
    # one of two clients is drawn, or of one: the client that comes takes the place of the other, a move of 2C
    one_more, one_less = drawn([-1.0, 1.0], 1, 0.5), drawn([-1.0], 1, 0.5)
    assert divergence(one_more, one_less, 8) > at("none", 8, 0.5)
    assert divergence(one_more, one_less, 8) <= at("none", 8, 0.5 / 2)  # z/2 covers it


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("z", [1.0, 2.0])
@pytest.mark.parametrize("alpha", [2, 4])
def test_golden_zeroing_out_a_client_asked_by_a_secret_coin_costs_what_poisson_counts(
    rate: float, z: float, alpha: int
) -> None:
    with_it, without = mixture([1.0, 0.0], [rate, 1 - rate], z), mixture([0.0], [1], z)
    assert divergence(with_it, without, alpha) == pytest.approx(at("poisson", alpha, z, rate), rel=1e-6)


@pytest.mark.parametrize(("clients", "size"), [(2, 1), (4, 1), (4, 2), (4, 3), (3, 3)])
@pytest.mark.parametrize("z", [1.0, 2.5])
def test_property_one_client_for_another_among_k_of_n_costs_no_more_than_fixed_counts(
    clients: int, size: int, z: float
) -> None:
    for others in itertools.combinations_with_replacement(VALUES, clients - 1):
        one, other = drawn([*others, 1.0], size, z), drawn([*others, -1.0], size, z)
        for alpha in (2, 5):
            assert divergence(one, other, alpha) <= at("fixed", alpha, z, size / clients) + 1e-9


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
def test_property_a_secret_draw_never_costs_more_than_none_of_the_same_neighbours(rate: float, z: float) -> None:
    assert (round_divergences("fixed", z, rate) <= round_divergences("none", z / 2, 1.0) + 1e-12).all()
    whole = [orders("none").index(order) for order in orders("poisson")]
    assert (round_divergences("poisson", z, rate) <= round_divergences("none", z, 1.0)[whole] + 1e-9).all()


def test_golden_the_bound_for_k_of_n_alone_would_exceed_that_without_a_draw() -> None:
    event = dp.SampledWithoutReplacementDpEvent(10, 9, dp.GaussianDpEvent(1.0 / 2))
    alone = dp.rdp.RdpAccountant(orders("fixed"), dp.NeighboringRelation.REPLACE_ONE).compose(event, 100)
    counted = epsilon("fixed", 100 * round_divergences("fixed", 1.0, 0.9), 1e-5)
    assert counted == pytest.approx(epsilon("none", 100 * round_divergences("none", 0.5, 1.0), 1e-5))
    assert alone.get_epsilon(1e-5) > 1.4 * counted


@pytest.mark.parametrize(("sampling", "rate"), [("none", 1.0), ("poisson", 0.1)])
def test_golden_an_accountant_of_loss_distributions_finds_a_little_less(sampling: Sampling, rate: float) -> None:
    event = dp.GaussianDpEvent(1.0) if sampling == "none" else dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(1.0))
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)  # zeroed out is the same pair here
    tight = accountant.compose(event, 100).get_epsilon(1e-5)
    counted = epsilon(sampling, 100 * round_divergences(sampling, 1.0, rate), 1e-5)
    assert tight <= counted <= 1.2 * tight


def test_golden_the_numbers_in_the_text() -> None:
    by_coin = epsilon("poisson", 100 * round_divergences("poisson", 1.0, 0.1), 1e-5)
    fixed = epsilon("fixed", 100 * round_divergences("fixed", 1.0, 0.1), 1e-5)
    none = epsilon("none", 100 * round_divergences("none", 1.0, 1.0), 1e-5)
    text = " ".join(DOCS.read_text().split())
    costs = f"{by_coin:.1f} at δ = 10⁻⁵ with `poisson`, {fixed:.0f} with `fixed`, and {none:.0f} with `none`"
    assert f"cost ε = {costs}" in text


def test_golden_over_selection_lets_a_slow_client_make_room_for_another() -> None:
    # two asked, the first counts: as client 0 has more to do, client 1 stands in for it and the sum moves by 2C
    clock = Deadline(seconds_per_step=1.0, over_selection=2.0)
    population = Population.of(np.ones(2, dtype=np.int64))
    here = View(round=1, rounds=1, streams=Streams(0), population=population, model=torch.zeros(1))
    rows = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    sums = []
    for steps in ([1, 2], [3, 2]):
        counted = clock.run(np.arange(2), np.array(steps), 0, here).done > 0
        sums.append(bounded_mean(rows[torch.from_numpy(counted)], 1.0, 1)[0])
    assert (sums[0] - sums[1]).abs().item() == 2.0


@pytest.mark.parametrize("sampling", ["poisson", "none"])
def test_error_over_selection_is_refused_where_a_client_counts_as_c(sampling: Sampling) -> None:
    rule = Private(clip_norm=1.0, noise_multiplier=1.0, cohort_size=2, sampling=sampling)
    selection = Poisson(prob=0.5) if sampling == "poisson" else Uniform(cohort_size=2)
    fleet = Fleet(clock=Deadline(over_selection=1.3))
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, selection=selection, aggregation=rule, fleet=fleet)
    (said,) = [found.message for found in problems(plan)]
    assert "displaces another one, so the sum changes by up to 2C" in said
    assert "Set fleet.clock.over_selection = 1" in said
    assert list(problems(replace(plan, fleet=Fleet(clock=Deadline(deadline_seconds=5.0))))) == []
    swaps = replace(rule, sampling="fixed")
    assert list(problems(replace(plan, selection=Uniform(cohort_size=2), aggregation=swaps))) == []


def noisy(arm: str, seed: int = 0) -> Combined:
    """A step of a client that sends nothing, in this arm."""
    rule = Private(clip_norm=0.5, noise_multiplier=3.0, cohort_size=4)
    here = replace(answers.view([1] * 4, 40_000), streams=Streams(seed, arm))
    return answers.combined(rule, answers.facts([0], total=4), np.zeros((1, 40_000)), here)


def test_golden_the_difference_of_two_arms_has_the_noise_of_both() -> None:
    one, other = noisy("one"), noisy("other")
    std = 3.0 * 0.5 / 4
    difference = (one.direction - other.direction).numpy() / (std * math.sqrt(2))
    assert abs(difference.std() - 1) < 4 / math.sqrt(80_000)
    assert abs(difference.mean()) < 4 / math.sqrt(40_000)
    assert torch.equal(one.direction, noisy("one").direction)  # and a run can be repeated


def test_contract_arms_of_a_study_share_their_cohorts_and_not_their_noise() -> None:
    study = to.Study(
        data=to.data.Synthetic(clients=5, samples=20),
        model=to.models.Softmax(),
        local=SGD(lr=0.1, steps=1),
        selection=Uniform(cohort_size=2),
        aggregation=Private(clip_norm=0.1, noise_multiplier=1.0, cohort_size=2),
        arms=(to.arm("one"), to.arm("other")),
        rounds=2,
        seeds=1,
    )
    run_factory = RunFactory(study, torch.device("cpu"))
    one, other = (run_factory.run(0, RunKey(arm, 0)).streams for arm in ("one", "other"))
    assert one.generator("selection", 1).random() == other.generator("selection", 1).random()
    assert one.arm_generator("privacy", 1).random() != other.arm_generator("privacy", 1).random()


def joint(rate: float, z: float, alpha: int) -> float:
    """The divergence of what two arms show together: one coin for both, noise of their own; one side sends 0."""
    axis = np.linspace(-14, 14, 561)
    x, y = np.meshgrid(axis, axis)
    off, on = (-0.5 * ((x - c) ** 2 + (y - c) ** 2) / z**2 for c in (0.0, 1.0))
    with_it = np.logaddexp(math.log(rate) + on, math.log1p(-rate) + off) if rate < 1 else on
    area = 2 * math.log(axis[1] - axis[0]) - math.log(2 * math.pi * z**2)
    ways = (alpha * with_it + (1 - alpha) * off, alpha * off + (1 - alpha) * with_it)
    return max(float(logsumexp(way)) + area for way in ways) / (alpha - 1)


def test_golden_two_arms_without_a_secret_draw_spend_the_sum() -> None:
    assert joint(1.0, 1.5, 2) == pytest.approx(2 * at("none", 2, 1.5))


def test_golden_two_arms_with_one_coin_spend_as_one_run_with_less_noise_and_more_than_the_sum() -> None:
    assert joint(0.2, 1.0, 2) == pytest.approx(at("poisson", 2, 1.0 / math.sqrt(2), 0.2), rel=1e-6)
    assert joint(0.2, 1.0, 2) > 1.2 * 2 * at("poisson", 2, 1.0, 0.2)


def test_contract_every_test_that_the_text_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCS.read_text()))
    here = Path(__file__).parent
    written = {
        name
        for file in ("test_private.py", "test_privacy_claims.py")
        for name in re.findall(r"^def (test_\w+)\(", (here / file).read_text(), re.MULTILINE)
    }
    assert len(named) > 10
    assert named <= written
