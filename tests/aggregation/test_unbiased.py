"""Which weightings are unbiased, and over what: by going through every set that may be up and every cohort of it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import aggregation_inputs as answers
from tests.support.runs import run
from tests.support.tasks import quadratic_task
from turnout.aggregation import ClusterFedVARP, FedAvg, FedNova, FedVARP, Joint, NormClipping
from turnout.array_types import Floats, Ids
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.fleet import Bernoulli, Cyclic, Fleet
from turnout.local import SGD, Adam
from turnout.protocols import Aggregation, Selection, View
from turnout.selection import Poisson, Uniform

SIZES = np.array([1, 4, 2, 3])
P = SIZES / SIZES.sum()
Q = np.array([0.9, 0.2, 0.5, 0.7])  # how likely each client is to be up
BERNOULLI = Bernoulli(prob=tuple(Q))
DELTA = np.array([[1.0, -2.0], [3.0, 0.5], [-4.0, 1.0], [0.0, 7.0]])
HERE = answers.view(SIZES, 2)


def subsets(clients: Any) -> list[Ids]:
    """Every subset of these clients."""
    return [np.array(s, dtype=np.int64) for size in range(len(clients) + 1) for s in combinations(clients, size)]


def chance(chosen: Ids, of: Ids, prob: Floats) -> float:
    """How likely these clients of those are chosen, each by a coin of its own."""
    return float(np.prod(np.where(np.isin(of, chosen), prob[of], 1 - prob[of])))


def cohorts(up: Ids, selection: Any) -> list[tuple[Ids, float, Floats]]:
    """Every cohort of those that are up, with its probability and the π that the selection itself says."""
    if isinstance(selection, Poisson):
        coin = np.full(4, selection.prob)
        return [(s, chance(s, up, coin), np.full(len(s), selection.prob)) for s in subsets(up)]
    size = min(selection.cohort_size or 4, len(up))
    every = [s for s in subsets(up) if len(s) == size]
    pi = selection.choose(up, HERE, None).inclusion_prob
    return [(s, 1 / len(every), pi) for s in every]


def mean_step(rule: Aggregation, up: Ids, selection: Selection, memory: Callable[..., Any] | None = None) -> Floats:
    """The mean direction over the cohorts of those that are up."""
    total = np.zeros(2)
    for cohort, prob, pi in cohorts(up, selection):
        given = answers.facts(cohort, weights=P[cohort], prob=pi, total=4)
        given = replace(given, availability_prob=BERNOULLI.probability(cohort, HERE))
        kept = {} if memory is None else memory()
        total += prob * answers.combined(rule, given, DELTA[cohort].reshape(-1, 2), HERE, kept).direction.numpy()
    return total


def over_availability(rule: Aggregation, selection: Selection, memory: Callable[..., Any] | None = None) -> Floats:
    """The mean direction over who is up, and over the cohorts."""
    return np.sum(  # type: ignore[no-any-return]
        [chance(up, np.arange(4), Q) * mean_step(rule, up, selection, memory) for up in subsets(range(4))], axis=0
    )


SELECTIONS = [Uniform(cohort_size=2), Uniform(), Poisson(prob=0.4)]


@pytest.mark.parametrize("selection", SELECTIONS, ids=["uniform", "everyone", "poisson"])
def test_golden_ht_is_unbiased_given_who_is_up_and_ht_fleet_over_who_is_up(selection: Selection) -> None:
    for up in subsets(range(4)):
        if len(up):
            assert np.allclose(mean_step(FedAvg(weighting="ht"), up, selection), P[up] @ DELTA[up])
    assert np.allclose(over_availability(FedAvg(weighting="ht-fleet"), selection), P @ DELTA)
    assert np.allclose(over_availability(FedAvg(weighting="ht"), selection), (P * Q) @ DELTA)  # leans to those often up


def remembered() -> dict[str, Any]:
    """What FedVARP remembers of four clients."""
    old = np.array([[1.0, 1.0], [-1.0, 0.0], [2.0, 2.0], [0.5, -3.0]])
    return answers.combined(FedVARP(weighting="ht"), answers.facts(range(4), prob=np.ones(4)), old, HERE).memory


@pytest.mark.parametrize("selection", SELECTIONS, ids=["uniform", "everyone", "poisson"])
def test_golden_fedvarp_is_unbiased_with_rounds_in_which_nobody_is_asked(selection: Selection) -> None:
    assert np.allclose(over_availability(FedVARP(weighting="ht-fleet"), selection, remembered), P @ DELTA)
    old = remembered()["table"].rows.numpy()
    for up in subsets(range(4)):
        if len(up):
            away = np.setdiff1d(np.arange(4), up)
            expected = P[up] @ DELTA[up] + P[away] @ old[away]
            assert np.allclose(mean_step(FedVARP(weighting="ht"), up, selection, remembered), expected)


class OnlyInRoundOne:
    def up(self, view: View) -> Ids:
        return np.array([0, 1] if view.round == 1 else [], dtype=np.int64)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (FedVARP(weighting="ht"), 6.0),
        (FedVARP(weighting="ht", normalise_by_lr=True), 6.0),
        (ClusterFedVARP(weighting="ht", num_clusters=1), 6.0),
        (FedVARP(), 3.0),
    ],
)
def test_golden_a_round_without_answers_steps_on_memory_under_ht_and_not_under_mean(
    rule: Aggregation, expected: float
) -> None:
    task = quadratic_task([1.0, 1.0], [[4.0], [8.0]], [1, 1])  # x = 0: Δ = 0.5·(−4, −8), u = −3
    local, fleet = SGD(lr=0.5, steps=1, batches="full"), Fleet(availability=OnlyInRoundOne())
    final, _ = run(task, Plan(local=local, rounds=2, fleet=fleet, aggregation=rule))
    assert final.model.item() == pytest.approx(expected)


def test_contract_a_run_divides_by_the_probability_to_be_up() -> None:
    task = quadratic_task([1.0] * 4, DELTA.tolist(), SIZES.tolist())
    plan = Plan(
        local=SGD(lr=0.1, steps=1, batches="full"),
        rounds=30,
        fleet=Fleet(availability=BERNOULLI),
        selection=Uniform(cohort_size=2),
        aggregation=FedAvg(weighting="ht-fleet"),
        evaluate=Cadence(every=10**9),
    )
    final, records = run(task, plan)
    assert torch.isfinite(final.model).all()
    for record in records[1:]:
        pi = min(2 / max(len(record.up), 1), 1.0)
        assert np.allclose(record.coefficients, P[record.asked] / (Q[record.asked] * pi))


@pytest.mark.parametrize(
    "rule",
    [
        FedAvg(weighting="ht-fleet"),
        FedNova(weighting="ht-fleet"),
        FedVARP(weighting="ht-fleet"),
        ClusterFedVARP(weighting="ht-fleet", num_clusters=2),
        Joint(weighting="ht-fleet"),
        NormClipping(weighting="ht-fleet"),
    ],
)
def test_error_a_fleet_that_does_not_know_its_probabilities_is_refused_before_the_run(rule: Aggregation) -> None:
    local = Adam(lr=0.1, steps=1, correction="joint") if isinstance(rule, Joint) else SGD(lr=0.1, steps=1)
    plan = Plan(local=local, rounds=1, fleet=Fleet(availability=Cyclic(groups=2)), aggregation=rule)
    (said,) = [found.message for found in problems(plan)]
    assert 'weighting = "ht-fleet" needs the probability that each client is available; Cyclic does not know it' in said
    assert 'Set aggregation.weighting to "ht"' in said
    assert list(problems(replace(plan, fleet=Fleet(availability=BERNOULLI)))) == []
