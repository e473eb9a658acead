"""Client-level differential privacy: what is summed, what noise is added, what is spent, what is refused."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from tests.support import aggregation_inputs as answers
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, Private
from turnout.aggregation.accounting import Sampling, accounting_library, epsilon, orders, round_divergences
from turnout.aggregation.private import LEAST_NOISE, MOST_NOISE, bounded_mean
from turnout.array_types import Floats
from turnout.assist import Safari
from turnout.asynchrony import FedBuff
from turnout.attacks import InnerProduct, SignFlip
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.filtering import DataSize
from turnout.fleet import Bernoulli, Deadline, Fleet, Fraction
from turnout.local import SGD
from turnout.local.effort import AdaComm
from turnout.protocols import Aggregation, Combined, Selection
from turnout.selection import LowLoss, Poisson, PowerOfChoice, Uniform, Weighted
from turnout.server import FedAdam, FedExP
from turnout.streams import Streams

LOCAL = SGD(lr=0.1, batch_size=4, epochs=1)


def rule(**more: Any) -> Private:
    return Private(**{"clip_norm": 1.0, "noise_multiplier": 0.0, "cohort_size": 2, **more})


def combined(
    rule: Aggregation,
    delta: ArrayLike,
    *,
    memory: dict[str, Floats | float] | None = None,
    round: int = 1,
    seed: int = 0,
    prob: float | None = None,
    buffers: None = None,
) -> Combined:
    """What the rule makes of these rows."""
    delta = np.asarray(delta, dtype=float)
    given = answers.facts(range(len(delta)), total=10, prob=None if prob is None else np.full(len(delta), prob))
    here = answers.view([1] * 10, delta.shape[1], round=round, seed=seed)
    return answers.combined(rule, given, delta, here, memory)


def test_golden_long_changes_are_cut_and_short_ones_are_not() -> None:
    # (3, 4) has length 5 and is cut to (0.6, 0.8); (0.3, 0) stays; the sum is halved
    found = combined(rule(), [[3.0, 4.0], [0.3, 0.0]])
    assert found.direction.tolist() == pytest.approx([0.45, 0.4])
    assert found.coefficients.tolist() == pytest.approx([0.1, 0.5])
    assert found.metrics == {"clipped": 1.0}


def test_golden_the_divisor_is_fixed_whoever_answers() -> None:
    assert combined(rule(cohort_size=4), [[0.4, 0.0]]).direction.tolist() == pytest.approx([0.1, 0.0])
    assert combined(rule(cohort_size=4), np.zeros((0, 2))).direction.tolist() == [0.0, 0.0]


def test_identity_no_noise_and_no_bound_is_fedavg_bit_for_bit() -> None:
    delta = np.random.default_rng(0).normal(size=(7, 5)) * 100
    private = combined(rule(clip_norm=math.inf, cohort_size=7), delta)
    plain = combined(FedAvg(weighting="mean"), delta)
    assert torch.equal(private.direction, plain.direction)
    assert np.array_equal(private.coefficients, plain.coefficients)


def test_identity_a_run_without_noise_and_bound_is_a_run_of_fedavg(any_engine: Callable[[], Engine]) -> None:
    task, rounds = blob_task(9), {"rounds": 4, "selection": Uniform(cohort_size=5), "evaluate": Cadence(every=10**9)}
    plain = Plan(local=LOCAL, aggregation=FedAvg(weighting="mean"), **rounds)  # type: ignore[arg-type]
    private = Plan(local=LOCAL, aggregation=rule(clip_norm=math.inf, cohort_size=5), **rounds)  # type: ignore[arg-type]
    one, _ = run(task, plain, engine=any_engine())
    two, _ = run(task, private, engine=any_engine())
    assert torch.allclose(one.model, two.model, rtol=1e-12, atol=1e-12)


rows = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=8)


@given(
    rows=rows,
    one=st.integers(0, 7),
    bound=st.floats(1e-3, 1e3),
    other=st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3),
)
def test_property_one_client_moves_the_mean_by_at_most_c_over_k_and_a_swap_by_twice_that(
    rows: list[list[float]], one: int, bound: float, other: list[float]
) -> None:
    delta, one = torch.tensor(rows, dtype=torch.float64), one % len(rows)
    whole = bounded_mean(delta, bound, 4)[0]
    without = bounded_mean(torch.cat([delta[:one], delta[one + 1 :]]), bound, 4)[0]
    swapped = delta.clone()
    swapped[one] = torch.tensor(other, dtype=torch.float64)
    rounding = 1e-12 * len(rows) * bound
    assert (whole - without).norm() <= bound / 4 + rounding
    assert (whole - bounded_mean(swapped, bound, 4)[0]).norm() <= 2 * bound / 4 + rounding


def test_property_a_client_can_use_up_the_whole_of_its_bound() -> None:
    # the bound is tight: half of it in the accounting would be a lie
    delta = torch.tensor([[1e3, 0.0], [0.0, 0.1]], dtype=torch.float64)
    moved = bounded_mean(delta, 2.0, 4)[0] - bounded_mean(delta[1:], 2.0, 4)[0]
    assert moved.norm().item() == pytest.approx(2.0 / 4)
    swapped = bounded_mean(delta, 2.0, 4)[0] - bounded_mean(delta * torch.tensor([[-1.0], [1.0]]), 2.0, 4)[0]
    assert swapped.norm().item() == pytest.approx(4.0 / 4)


def test_property_drawn_twice_counts_once() -> None:
    given = answers.facts([0, 1], times=[3, 1], total=10)
    delta = np.array([[0.5, 0.0], [0.0, 0.5]])
    found = answers.combined(rule(), given, delta, answers.view([1] * 10, 2))
    assert found.direction.tolist() == pytest.approx([0.25, 0.25])


def test_golden_noise_has_its_own_stream_and_is_z_c_over_k() -> None:
    noisy = rule(noise_multiplier=3.0, clip_norm=0.5, cohort_size=4)
    delta = [[0.1, 0.2], [0.0, -0.3]]
    still = combined(rule(clip_norm=0.5, cohort_size=4), delta).direction
    drawn = Streams(5).generator("privacy of arm ", 7).standard_normal(2)
    found = combined(noisy, delta, round=7, seed=5)
    assert (found.direction - still).tolist() == pytest.approx((3.0 * 0.5 / 4 * drawn).tolist())
    assert found.metrics["noise_std"] == pytest.approx(0.375)


def test_property_noise_is_normal_with_the_deviation_said_and_new_each_round() -> None:
    noisy = rule(noise_multiplier=2.0, clip_norm=3.0, cohort_size=10)
    first, second = (combined(noisy, np.zeros((1, 40_000)), round=t) for t in (1, 2))
    values = first.direction.numpy() / first.metrics["noise_std"]
    assert first.metrics["noise_std"] == pytest.approx(0.6)
    assert abs(values.mean()) < 4 / np.sqrt(40_000)
    assert abs(values.std() - 1) < 4 / np.sqrt(80_000)
    assert abs((values**4).mean() - 3) < 0.2  # a normal's fourth moment
    assert abs(np.corrcoef(first.direction, second.direction)[0, 1]) < 4 / np.sqrt(40_000)


def after(rounds: int, **more: Any) -> list[float]:
    """ε after so many rounds, and how each round changed it."""
    memory: dict[str, Any]
    memory, found, prob = {}, [], more.pop("prob", None)
    for t in range(1, rounds + 1):
        step = combined(rule(**more), [[0.1, 0.1]] * 2, memory=memory, round=t, prob=prob)
        memory = step.memory
        found.append(step.metrics["epsilon"])
    return found


def test_golden_without_sampling_the_accountant_sees_plain_gaussians() -> None:
    accountant = dp.rdp.RdpAccountant(orders("none")).compose(dp.GaussianDpEvent(1.5), 8)
    found = after(8, noise_multiplier=1.5, delta=1e-6)
    assert found[-1] == pytest.approx(accountant.get_epsilon(1e-6))
    # by hand: the divergence at order α is α·8/(2·1.5²), and one order alone bounds ε from above
    alpha = 3.0
    assert found[-1] < alpha * 8 / (2 * 1.5**2) + math.log(1e6) / (alpha - 1)
    assert all(one < two for one, two in itertools.pairwise(found))


def test_golden_poisson_draws_are_accounted_for_as_such() -> None:
    event = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
    accountant = dp.rdp.RdpAccountant(orders("poisson")).compose(event, 5)
    found = after(5, noise_multiplier=1.0, sampling="poisson", prob=0.1)
    assert found[-1] == pytest.approx(accountant.get_epsilon(1e-5))
    assert found[-1] < after(5, noise_multiplier=1.0)[-1] / 3


def test_golden_fixed_draws_count_a_swap_with_half_the_noise() -> None:
    event = dp.SampledWithoutReplacementDpEvent(20, 2, dp.GaussianDpEvent(4.0 / 2))
    relation = dp.NeighboringRelation.REPLACE_ONE
    accountant = dp.rdp.RdpAccountant(orders("fixed"), relation).compose(event, 5)
    assert after(5, noise_multiplier=4.0, sampling="fixed", prob=0.1)[-1] == pytest.approx(accountant.get_epsilon(1e-5))


def test_identity_drawing_everyone_gains_nothing() -> None:
    alone = round_divergences("none", 2.0, 1.0)
    assert np.allclose(round_divergences("fixed", 4.0, 1.0), alone)
    whole = [orders("none").index(order) for order in orders("poisson")]
    assert np.allclose(round_divergences("poisson", 2.0, 1.0), alone[whole])


@settings(max_examples=20)
@given(rate=st.floats(0.01, 0.5), noise=st.floats(0.5, 5.0))
def test_property_more_noise_and_fewer_asked_spend_less(rate: float, noise: float) -> None:
    def total(sampling: Sampling, noise: float, rate: float) -> float:
        return epsilon(sampling, 10 * round_divergences(sampling, noise, rate), 1e-5)

    assert total("poisson", noise * 2, rate) < total("poisson", noise, rate)
    assert total("poisson", noise, rate) < total("poisson", noise, min(1.0, rate * 2))
    assert total("poisson", noise, rate) < total("none", noise, 1.0)


def test_contract_without_noise_no_epsilon_is_claimed() -> None:
    found = combined(rule(), [[0.1, 0.1]])
    assert "epsilon" not in found.metrics
    assert found.memory == {}


def test_contract_where_nobody_answered_the_last_known_rate_counts_and_else_the_worst() -> None:
    poisson = rule(noise_multiplier=1.0, sampling="poisson")
    memory = combined(poisson, [[0.1, 0.1]], prob=0.1).memory
    later = combined(poisson, np.zeros((0, 2)), memory=memory, prob=0.1)
    assert np.allclose(later.memory["divergences"], 2 * round_divergences("poisson", 1.0, 0.1))
    first = combined(poisson, np.zeros((0, 2)), prob=0.1)
    assert np.allclose(first.memory["divergences"], round_divergences("poisson", 1.0, 1.0))
    fixed = rule(noise_multiplier=1.0, sampling="fixed")  # fewer may be up than when the rate was last seen
    later = combined(fixed, np.zeros((0, 2)), memory=combined(fixed, [[0.1, 0.1]], prob=0.1).memory, prob=0.1)
    assert np.allclose(
        later.memory["divergences"], round_divergences("fixed", 1.0, 0.1) + round_divergences("fixed", 1.0, 1.0)
    )


def private_plan(**more: Any) -> Plan:
    chosen = {"local": LOCAL, "rounds": 6, "selection": Poisson(prob=0.05), "evaluate": Cadence(every=10**9), **more}
    chosen.setdefault("aggregation", rule(noise_multiplier=1.0, sampling="poisson"))
    return Plan(**chosen)


IDLE = Fleet(work=Fraction(fraction=0.0))  # whoever is asked never answers


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"fleet": IDLE, "selection": Uniform(cohort_size=2), "aggregation": rule(noise_multiplier=1.0)},
        {
            "fleet": IDLE,
            "selection": Uniform(cohort_size=2),
            "aggregation": rule(noise_multiplier=1.0, sampling="fixed"),
        },
    ],
    ids=["poisson", "none", "fixed"],
)
def test_contract_a_round_without_answers_is_noisy_too_and_one_with_nobody_up_is_still(more: dict[str, Any]) -> None:
    task = blob_task(9)
    _, records = run(task, private_plan(**more), seed=1)
    empty = [r for r in records[1:] if len(r.answered) == 0]
    assert empty
    assert all(r.metrics["noise_std"] > 0 and "epsilon" in r.metrics for r in empty)
    quiet, records = run(task, private_plan(**more | {"fleet": Fleet(availability=Bernoulli(prob=1e-9))}))
    assert torch.equal(quiet.model, task.layout.flatten(task.module))
    assert all("epsilon" not in r.metrics for r in records)


def test_contract_a_round_with_nobody_asked_moves_by_its_noise_alone() -> None:
    task = quadratic_task([1.0] * 3, [[1.0, 2.0]] * 3, [1] * 3)
    final, records = run(task, private_plan(selection=Poisson(prob=1e-9), rounds=1))
    noise = Streams(0).generator("privacy of arm ", 1).standard_normal(2)
    assert final.model.tolist() == pytest.approx((-noise / 2).tolist())
    assert len(records[1].answered) == 0


def test_contract_epsilon_grows_round_by_round_in_the_record_and_other_draws_stay() -> None:
    task = blob_task(9)
    selection = Uniform(cohort_size=4)
    aggregation = rule(noise_multiplier=1.0, cohort_size=4, clip_norm=0.1)
    final, records = run(task, private_plan(selection=selection, aggregation=aggregation))
    _, plain = run(task, private_plan(selection=selection, aggregation=FedAvg()))
    spent_so_far = [r.metrics["epsilon"] for r in records[1:]]
    assert all(one < two for one, two in itertools.pairwise(spent_so_far))
    assert [r.asked.tolist() for r in records] == [r.asked.tolist() for r in plain]
    assert torch.isfinite(final.model).all()


REFUSED = {
    "by loss": ({"selection": PowerOfChoice(cohort_size=2, pool_size=4)}, "does not read data"),
    "by low loss": ({"selection": LowLoss(cohort_size=2, pool_size=4)}, "does not read data"),
    "by size": ({"selection": Weighted(cohort_size=2)}, "does not read data"),
    "drawn twice": ({"selection": Uniform(cohort_size=2, replacement=True)}, "without replacement"),
    "another size": ({"selection": Uniform(cohort_size=3)}, "Set aggregation.cohort_size to 3"),
    "filtered": ({"filtering": DataSize(least=2)}, "Leave filtering out"),
    "controls": ({"local": SGD(lr=0.1, steps=1, control="average")}, "unclipped updates"),
    "losses": ({"local": SGD(lr=0.1, effort=AdaComm(start=3, every=1))}, "without noise"),
    "norms": ({"server": FedExP()}, "unclipped update norms"),
    "no waiting": ({"asynchrony": FedBuff(buffer_size=1, concurrency=2)}, "Leave asynchrony out"),
    "server rounds": ({"assist": Safari(lr=0.1)}, "Leave assist and membership out"),
    "over-selection": ({"fleet": Fleet(clock=Deadline(over_selection=1.3))}, "displaces another"),
    "colluders": ({"attack": InnerProduct(fraction=0.2)}, "attackers that see others' updates"),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_error_what_the_guarantee_does_not_cover_is_refused(change: dict[str, Selection], reason: str) -> None:
    given: dict[str, Any] = {
        "local": LOCAL,
        "rounds": 1,
        "selection": Uniform(cohort_size=2),
        "aggregation": rule(),
        **change,
    }
    said = [found.message for found in problems(Plan(**given))]
    assert any(reason in text for text in said), said


@pytest.mark.parametrize(
    "more",
    [
        {"server": FedAdam()},
        {"attack": SignFlip(fraction=0.2)},
        {"selection": Uniform()},
        {"selection": Poisson(prob=0.1)},
        {"fleet": Fleet(availability=Bernoulli(prob=0.5))},
    ],
)
def test_contract_what_comes_after_the_noise_or_looks_at_no_data_is_allowed(more: dict[str, Any]) -> None:
    given = {"local": LOCAL, "rounds": 1, "selection": Uniform(cohort_size=2), "aggregation": rule(), **more}
    assert list(problems(Plan(**given))) == []


@pytest.mark.parametrize(
    ("sampling", "selection", "reason"),
    [
        ("fixed", Poisson(prob=0.1), r"Set selection\.use to uniform"),
        ("poisson", Uniform(cohort_size=2), r"Set selection\.use to poisson"),
        ("fixed", Uniform(), r"every client is selected"),
    ],
)
def test_error_a_draw_that_the_accounting_does_not_assume_is_refused(
    sampling: str, selection: Selection, reason: str
) -> None:
    plan = Plan(local=LOCAL, rounds=1, selection=selection, aggregation=rule(sampling=sampling))
    with pytest.raises(AssertionError, match=reason):
        assert not list(problems(plan))


def test_error_buffers_are_not_covered() -> None:
    given = answers.facts([0], total=10)
    here = answers.view([1] * 10, 2)
    here = type(here)(
        round=1, rounds=1, streams=here.streams, population=here.population, model=here.model, buffers=torch.ones(1)
    )
    with pytest.raises(ConfigError, match=r"covers parameters only; this model has buffers.*Change model"):
        answers.combined(rule(), given, [[1.0, 0.0]], here)


@pytest.mark.parametrize(
    ("setting", "value", "need"),
    [
        ("clip_norm", 0.0, "> 0"),
        ("clip_norm", math.nan, "to be a number"),
        ("noise_multiplier", -1.0, ">= 0"),
        ("noise_multiplier", math.inf, "<= 1,000"),
        ("noise_multiplier", 1e9, "<= 1,000"),
        ("noise_multiplier", 1e-300, "= 0 or >= 0.01"),
        ("cohort_size", 0, ">= 1"),
        ("cohort_size", 10**12, "<= 100,000,000"),
        ("delta", 0.0, r"in \(0, 1\)"),
        ("delta", 1.0, r"in \(0, 1\)"),
        ("delta", 1e308, r"in \(0, 1\)"),
    ],
)
def test_error_a_setting_that_cannot_be_is_named(setting: str, value: float, need: str) -> None:
    with pytest.raises(ConfigError, match=rf"Private needs {setting} {need}.*; got .*Change aggregation\.{setting}"):
        rule(**{setting: value})


def test_error_noise_needs_a_bound_to_be_measured_in() -> None:
    with pytest.raises(
        ConfigError, match=r"Private with noise needs clip_norm <= 1e\+12.*got 1e\+308. Change aggregation"
    ):
        rule(clip_norm=1e308, noise_multiplier=10.0)
    assert rule(clip_norm=1e308, noise_multiplier=0.0).clip_norm == 1e308  # without noise it is only never reached
    with pytest.raises(ConfigError, match=r"Private with noise needs a finite clip_norm"):
        rule(clip_norm=math.inf, noise_multiplier=1.0)


def test_error_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"dp-accounting to compute ε; it is not installed.*turnout\[privacy\]"):
        accounting_library()


@pytest.mark.parametrize("sampling", ["none", "poisson", "fixed"])
@pytest.mark.parametrize("noise", [LEAST_NOISE, MOST_NOISE])
@pytest.mark.parametrize("delta", [1e-300, 1 - 1e-12])
def test_property_epsilon_is_finite_at_the_ends_of_what_can_be_set(
    sampling: Sampling, noise: float, delta: float
) -> None:
    found = epsilon(sampling, 100 * round_divergences(sampling, noise, 0.5), delta)
    assert 0 <= found < math.inf
