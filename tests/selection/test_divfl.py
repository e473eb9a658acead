"""DivFL: the greedy choice against brute force, and whose gradients are asked for, and when."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.optional import present
from tests.support.runs import run
from tests.support.selection_asking import Desk, chosen, next_round, view
from tests.support.selection_claims import best_subset, claim_one_of_each_group_is_chosen
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg
from turnout.array_types import Floats, Ids
from turnout.coordinator import Cadence, Plan
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.protocols import Population
from turnout.selection import DivFL
from turnout.selection.facility_location import distances, gains, greedy, lazy_greedy, medoid, representation_counts

LINE = np.array([0.0, 1.0, 2.0, 10.0])
ON_LINE = np.abs(LINE[:, None] - LINE[None])


def coverage(apart: Floats, chosen: Ids) -> float:
    """G(S): the sum of all distances to the nearest chosen point."""
    return float(apart[chosen].min(0).sum())


def apart_of(seed: int, n: int = 9, dim: int = 3, ties: bool = False) -> Floats:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3, (n, dim)) * 1.0 if ties else rng.normal(size=(n, dim))
    result: Floats = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    return result


def test_golden_four_points_on_a_line_by_hand() -> None:
    # sums of distances 13, 11, 11, 27: the medoid is place 1, the lowest of a tie; then 10 is worth 9, 0 and 2 are 1
    assert greedy(ON_LINE, 3).tolist() == [1, 3, 0]
    assert [coverage(ON_LINE, greedy(ON_LINE, k)) for k in (1, 2, 3, 4)] == [11, 2, 1, 0]
    assert representation_counts(ON_LINE, np.array([1, 3])).tolist() == [3, 1]
    assert representation_counts(np.zeros((3, 3)), np.array([0, 1])).tolist() == [
        2,
        1,
    ]  # a chosen client stands for itself


@given(st.integers(0, 10**6), st.booleans())
def test_property_g_falls_with_every_pick_and_ends_at_zero(seed: int, ties: bool) -> None:
    apart = apart_of(seed, ties=ties)
    order = greedy(apart, 9)
    assert order[0] == medoid(apart, np.arange(9))
    assert apart[order[0]].sum() <= apart.sum(0).min() * (1 + 1e-9)
    values = [coverage(apart, order[:k]) for k in range(1, 10)]
    assert (np.diff(values) <= 0).all()
    assert values[-1] == 0
    assert sorted(order) == list(range(9))


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 9))
def test_identity_lazy_is_naive_ties_included(seed: int, ties: bool, size: int) -> None:
    apart = apart_of(seed, ties=ties)
    assert np.array_equal(lazy_greedy(apart, size), greedy(apart, size))


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_identity_stochastic_with_everyone_on_offer_is_naive(seed: int, size: int) -> None:
    apart = apart_of(seed)
    offered = np.random.default_rng(seed).permuted(np.tile(np.arange(9)[:, None], size), axis=0)
    assert np.array_equal(greedy(apart, size, offered, 9), greedy(apart, size))


def test_golden_stochastic_looks_at_the_first_that_are_open() -> None:
    offered = np.array([[3, 3, 0], [0, 0, 3], [1, 1, 1], [2, 2, 2]])
    # of (3, 0): 0 has the smaller sum; of (3, 1), 0 being taken: 3 is worth more; of (1, 2): each is worth 2
    assert greedy(ON_LINE, 3, offered, 2).tolist() == [0, 3, 1]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_property_greedy_gains_most_of_what_the_best_subset_gains(seed: int, size: int) -> None:
    apart = apart_of(seed, n=9)
    nobody = 9 * apart.max()  # everyone as far as can be: the gain of the empty set is zero
    gained, best = nobody - coverage(apart, greedy(apart, size)), nobody - best_subset(apart, size)
    assert gained >= (1 - 1 / np.e) * best - 1e-9
    assert gained <= best + 1e-9


@pytest.mark.parametrize("way", [greedy, lazy_greedy])
def test_property_one_of_each_group_of_equal_gradients_is_chosen(way: Callable[..., Any]) -> None:
    claim_one_of_each_group_is_chosen(way)


def is_clear(apart: Floats, order: Ids) -> bool:
    """Whether no pick of this order was a near tie."""
    places = np.arange(len(apart))
    for at, pick in enumerate(order):
        nearest = apart[order[:at]].min(0) if at else None
        worth = gains(apart, present(nearest), places) if at else -apart.sum(0)
        others = np.delete(worth, order[: at + 1])
        if (others > worth[pick] - 1e-6).any():
            return False
    return True


def test_property_renumbering_clients_renumbers_the_choice_where_nobody_ties() -> None:
    clear = [seed for seed in range(200) if is_clear(apart_of(seed), greedy(apart_of(seed), 3))]
    assert len(clear) > 20
    for seed in clear:
        order = np.random.default_rng(seed + 1).permutation(9)
        assert np.array_equal(order[greedy(apart_of(seed)[np.ix_(order, order)], 3)], greedy(apart_of(seed), 3))


def test_property_two_clients_near_each_other_tie_whatever_the_rounding() -> None:
    # a pair far from the rest: either covers both, at the same gain but for rounding; the lowest id is taken
    for seed in range(50):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(6, 3))
        points[[2, 4]] += 50
        apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
        assert greedy(apart, 2)[1] == lazy_greedy(apart, 2)[1] == 2


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_property_everyone_is_represented_by_somebody_near(seed: int, size: int) -> None:
    apart = apart_of(seed, ties=True)
    picked = np.sort(greedy(apart, size))
    counts = representation_counts(apart, picked)
    assert counts.sum() == 9
    assert (counts >= 1).all()


def test_golden_distances_are_exact_for_equal_rows_and_right_for_others() -> None:
    rng = np.random.default_rng(0)
    rows = torch.tensor(rng.normal(size=(6, 10_000)) + 1000, dtype=torch.float32)  # far from zero: a hard case
    rows[3] = rows[0]
    found = distances(rows, rows)
    assert found[0, 3] == found[3, 0] == 0
    assert (np.diag(found) == 0).all()
    exact = (rows.double()[:, None] - rows.double()[None]).square().sum(-1).sqrt().numpy()
    assert np.allclose(found, exact, rtol=1e-9)
    assert np.allclose(distances(rows[:2], rows[2:]), exact[:2, 2:], rtol=1e-9)


def test_contract_a_gradient_that_is_not_finite_is_passed_over() -> None:
    rows = torch.tensor([[0.0], [torch.nan], [0.1], [5.0], [torch.inf], [5.1]]).double()
    for refresh in ("full", "no-overhead"):
        rule = DivFL(cohort_size=2, refresh=refresh, represent=True)
        choice = chosen(rule, range(6), view([1] * 6, dim=1), Desk(gradient=rows))
        assert not np.isin(choice.clients, [1, 4]).any()
        assert choice.multiplicity.tolist() == [2, 2]
        nobody = chosen(rule, [1, 4], view([1] * 6, dim=1), Desk(gradient=rows))
        assert len(nobody.clients) == (2 if refresh == "full" else 0)  # "full" asks nobody when all are wanted


def test_identity_as_many_as_are_up_is_everyone() -> None:
    desk = Desk(gradient=torch.zeros(9, 2).double())
    choice = chosen(DivFL(cohort_size=5, refresh="full"), [1, 4, 6], view([1] * 9), desk)
    assert choice.clients.tolist() == [1, 4, 6]
    assert not desk.asked


def gradients(seed: int, n: int = 8) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, 2)))


def asked(desk: Desk) -> list[list[int]]:
    return [q.clients.tolist() for q in desk.asked]


def test_property_full_asks_everyone_who_is_up_in_every_round() -> None:
    here, rule = view([1] * 8), DivFL(cohort_size=2, refresh="full")
    for up in ([0, 1, 2, 3], [2, 4, 6, 7]):
        desk = Desk(gradient=gradients(0))
        choice = chosen(rule, up, here, desk)
        assert asked(desk) == [up]
        assert choice.memory == {}
        here = next_round(here, choice)


def test_property_no_overhead_asks_newcomers_once_and_the_chosen_each_time() -> None:
    here, rule = view([1] * 8), DivFL(cohort_size=2)
    first = Desk(gradient=gradients(0))
    choice = chosen(rule, [0, 1, 2, 3], here, first)
    assert asked(first) == [[0, 1, 2, 3]]  # the chosen have just been asked at this very model
    here = next_round(here, choice)
    second = Desk(gradient=gradients(1))
    choice = chosen(rule, [0, 1, 2, 3], here, second)
    assert asked(second) == [choice.clients.tolist()]
    here = next_round(here, choice)
    third = Desk(gradient=gradients(2))
    choice = chosen(rule, [2, 3, 5, 7], here, third)
    assert asked(third)[0] == [5, 7]
    assert asked(third)[1:] == ([old] if (old := [c for c in choice.clients.tolist() if c < 4]) else [])


def test_property_the_remembered_distances_are_those_of_the_remembered_gradients() -> None:
    here, rule = view([1] * 8), DivFL(cohort_size=3)
    for seed, up in enumerate(([0, 1, 2, 3], [1, 2, 5, 6], [0, 3, 5, 6, 7])):
        choice = chosen(rule, up, here, Desk(gradient=gradients(seed)))
        here = next_round(here, choice)
    table, apart = here.memory["table"], here.memory["distances"]
    known = np.flatnonzero(table.seen)
    rows = table.take(known)
    assert known.tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert np.allclose(apart.numpy()[np.ix_(known, known)], torch.cdist(rows, rows).numpy(), rtol=0, atol=1e-12)
    assert torch.equal(apart, apart.T)
    assert not apart[4].any()


def test_property_no_overhead_chooses_by_what_it_remembers() -> None:
    old, new = gradients(0), gradients(5)
    here, rule = view([1] * 8), DivFL(cohort_size=2)
    first = chosen(rule, range(8), here, Desk(gradient=old))
    second = chosen(rule, range(8), next_round(here, first), Desk(gradient=new))
    assert np.array_equal(first.clients, second.clients)  # nothing was refreshed in between
    third = chosen(rule, range(8), next_round(next_round(here, first), second), Desk(gradient=new))
    mixed = old.clone()
    mixed[second.clients] = new[second.clients]
    full = chosen(replace(rule, refresh="full"), range(8), here, Desk(gradient=mixed))
    assert np.array_equal(third.clients, full.clients)


def test_golden_represent_draws_a_client_once_for_each_nearest_to_it() -> None:
    desk = Desk(gradient=torch.tensor(LINE)[:, None])
    choice = chosen(DivFL(cohort_size=2, refresh="full", represent=True), range(4), view([1] * 4), desk)
    assert (choice.clients.tolist(), choice.multiplicity.tolist()) == ([1, 3], [3, 1])


def test_property_represented_clients_are_weighed_by_mean() -> None:
    task = blob_task(7)
    plan = Plan(
        local=SGD(lr=0.1, steps=1, batches="full"),
        rounds=3,
        selection=DivFL(cohort_size=2, represent=True),
        aggregation=FedAvg(weighting="mean"),
        evaluate=Cadence(every=10**9),
    )
    _, records = run(task, plan)
    for record in records[1:]:
        assert record.multiplicity.sum() == 7
        assert np.allclose(record.coefficients, record.multiplicity / 7)


def test_property_gradients_asked_for_are_billed() -> None:
    task = blob_task(6)
    size = 8 * len(task.layout.flatten(task.module))
    plan = Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=2, selection=DivFL(cohort_size=2))
    _, records = run(task, plan)
    sizes = task.federation.sizes
    assert [r.costs.probe_evaluations for r in records[1:]] == [sizes.sum(), sizes[records[2].asked].sum()]
    assert [r.costs.bytes_up for r in records[1:]] == [size * (2 + 6), size * (2 + 2)]


def test_error_represent_needs_the_mean_and_the_message_says_so() -> None:
    task = blob_task(4)
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, selection=DivFL(cohort_size=2, represent=True))
    with pytest.raises(
        ConfigError, match=r'represent = true needs an aggregation with weighting = "mean"; got ratio\. Set aggregation'
    ):
        run(task, plan)


def test_error_too_many_clients_for_a_matrix_of_distances() -> None:
    (text,) = [
        found.message
        for found in DivFL(cohort_size=5).population_problems(Population.of(np.ones(1_000_000, dtype=np.int64)))
    ]
    assert text == (
        "DivFL needs a distance for every pair of clients, so at most 10000 clients; got 1000000. "
        'Select with "power-of-choice" or "oort", or use fewer clients.'
    )
    assert not list(DivFL(cohort_size=5).population_problems(Population.of(np.ones(10_000, dtype=np.int64))))


def test_error_settings_out_of_range_are_named() -> None:
    with pytest.raises(ConfigError, match=r"DivFL needs cohort_size >= 1; got 0\. Change selection\.cohort_size"):
        DivFL(cohort_size=0)
    with pytest.raises(ConfigError, match=r"DivFL needs candidates_share in \(0, 1\]; got 0\. Change selection\.candi"):
        DivFL(cohort_size=1, candidates_share=0)
