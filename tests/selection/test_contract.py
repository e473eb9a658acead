"""What every selection rule does, whoever is up."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.selection_asking import Desk, chosen, next_round, view
from tests.support.selection_rules import RULES
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg
from turnout.array_types import Ids
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.fleet import Bernoulli, Deadline, Fleet, Lognormal
from turnout.local import SGD
from turnout.protocols import Choice, Selection, View
from turnout.selection import Optimal, Poisson
from turnout.streams import Streams

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def most_asked(rule: Any) -> int | None:
    """The largest number of different clients a rule may ask."""
    return rule.pool_size if isinstance(rule, Optimal) else rule.cohort_size


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Ids, View, Desk]:
    """Sizes, who is up, who has been heard from, and answers to whatever is asked."""
    sizes = draw(st.lists(st.integers(1, 50), min_size=1, max_size=14))
    n = len(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    up = np.flatnonzero(rng.random(n) < draw(st.sampled_from([0.2, 0.6, 1.0])))
    last = np.where(rng.random(n) < 0.5, np.nan, rng.random(n) * 3)
    few = draw(st.booleans())  # equal losses and equal gradients, to have ties
    loss = rng.integers(0, 2, n) * 1.0 if few else rng.normal(size=n)
    rows = torch.tensor(rng.integers(0, 2, (n, 2)) * 1.0 if few else rng.normal(size=(n, 2)))
    here = view(sizes, seed=draw(st.integers(0, 99)), round=draw(st.integers(1, 9)), last=last)
    return up, here, Desk(loss=loss, gradient=rows, delta=rows)


def test_contract_every_rule_of_the_catalogue_is_here() -> None:
    assert {type(rule) for rule in RULES.values()} == set(catalogue("selection").values())


@every_rule
@settings(max_examples=30)
@given(case=rounds())
def test_contract_only_the_pool_is_asked_ascending_each_once_and_never_too_many(
    rule: Any, case: tuple[Ids, View, Desk]
) -> None:
    up, here, desk = case
    choice = chosen(rule, up, here, desk)
    for question in desk.asked:
        assert np.isin(question.clients, up).all()
        assert (np.diff(question.clients) > 0).all()
    assert choice.clients.dtype == choice.multiplicity.dtype == np.int64
    assert np.isin(choice.clients, up).all()
    assert (np.diff(choice.clients) > 0).all()
    assert len(choice.multiplicity) == len(choice.clients)
    assert (choice.multiplicity >= 1).all()
    if most_asked(rule) is not None:
        assert len(choice.clients) <= most_asked(rule)  # type: ignore[operator]
    if choice.inclusion_prob is not None:
        assert len(choice.inclusion_prob) == len(choice.clients)
        assert (choice.inclusion_prob > 0).all()
    assert as_many_as_wanted(rule, choice, up)


@every_rule
def test_contract_an_empty_pool_gives_an_empty_choice_and_asks_nothing(rule: Any) -> None:
    desk = Desk(loss=np.ones(4), gradient=torch.ones(4, 2), delta=torch.ones(4, 2))
    choice = chosen(rule, [], view([1, 2, 3, 4], last=[1.0, 2.0, np.nan, 1.0], round=2), desk)
    assert len(choice.clients) == len(choice.multiplicity) == 0
    assert not desk.asked


def as_many_as_wanted(rule: Any, choice: Choice, up: Ids) -> bool:
    """Whether the cohort is as large as who is up allows."""
    drawn, wanted = int(choice.multiplicity.sum()), min(rule.cohort_size or len(up), len(up))
    if isinstance(rule, Optimal | Poisson):  # coins
        return drawn <= min(getattr(rule, "pool_size", len(up)), len(up))
    if getattr(rule, "replacement", False):
        return drawn == (rule.cohort_size if len(up) else 0)
    if getattr(rule, "represent", False):
        return drawn == len(up) and len(choice.clients) == wanted
    return drawn == wanted


@every_rule
@settings(max_examples=12)
@given(case=rounds())
def test_contract_a_choice_is_a_function_of_seed_and_round_whatever_array_the_pool_is(
    rule: Any, case: tuple[Ids, View, Desk]
) -> None:
    up, here, desk = case
    first = chosen(rule, up, here, desk)
    backwards = np.ascontiguousarray(up[::-1])[::-1]  # the same set, laid out the other way in memory
    spread = np.repeat(up, 3)[::3]
    for same in (np.array(sorted({int(c) for c in up}), dtype=np.int64), backwards, spread):
        other = chosen(rule, same, here, replace(desk, asked=[]))
        assert np.array_equal(first.clients, other.clients)
        assert np.array_equal(first.multiplicity, other.multiplicity)
        assert (first.inclusion_prob is None) == (other.inclusion_prob is None)


@every_rule
def test_contract_what_a_rule_is_given_is_not_changed(rule: Any) -> None:
    up, last = np.arange(0, 12, 2), np.array([np.nan, 1.0, 2.0] * 4)
    here = view(range(1, 13), last=last.copy(), round=3)
    rows = torch.tensor(np.random.default_rng(0).normal(size=(12, 2)))
    desk = Desk(loss=np.arange(12.0), gradient=rows.clone(), delta=rows.clone())
    up.flags.writeable = here.last_losses.flags.writeable = here.weights.flags.writeable = False
    chosen(rule, up, here, desk)
    assert torch.equal(desk.gradient, rows)
    assert torch.equal(desk.delta, rows)


SEEDED = {name: rule for name, rule in RULES.items() if name not in ("uniform, everyone", "divfl, full", "divfl")}


@pytest.mark.parametrize("name", sorted(set(SEEDED) - {"divfl, represent"}))
def test_contract_another_seed_or_round_is_another_draw(name: str) -> None:
    n = 40
    rng = np.random.default_rng(0)
    desk = Desk(loss=rng.random(n), gradient=torch.tensor(rng.normal(size=(n, 2))), delta=torch.ones(n, 2))
    here = view([2] * n, last=rng.random(n) + 1)

    def draws(at: Iterator[Any]) -> list[list[int]]:
        return [chosen(SEEDED[name], np.arange(n), view_, desk).clients.tolist() for view_ in at]

    by_seed = draws(replace(here, streams=Streams(s)) for s in range(6))
    by_round = draws(replace(here, round=r) for r in range(1, 7))
    assert any(d != by_seed[0] for d in by_seed)
    assert any(d != by_round[0] for d in by_round)


@pytest.mark.parametrize("name", ["divfl", "oort"])
def test_contract_what_is_remembered_is_not_changed_in_place(name: str) -> None:
    rows = torch.tensor(np.random.default_rng(0).normal(size=(12, 2)))
    here, desk = view([1] * 12, last=np.ones(12)), Desk(gradient=rows)
    here = next_round(here, chosen(RULES[name], np.arange(12), here, desk))
    kept = {key: copy.deepcopy(value) for key, value in here.memory.items() if key != "table"}  # a table is put into
    after = chosen(RULES[name], np.arange(3, 12), here, replace(desk, gradient=rows * 2 - 1)).memory
    for key, value in kept.items():
        assert np.array_equal(here.memory[key], value)
        assert not np.array_equal(after[key], value)


def plan_of(rule: Any, rounds: int = 5) -> Plan:
    weighting = "ht" if isinstance(rule, Optimal) else "mean"
    return Plan(
        local=SGD(lr=0.1, batch_size=4, epochs=1),
        rounds=rounds,
        fleet=Fleet(availability=Bernoulli(prob=0.6), clock=Deadline(seconds_per_step=Lognormal(median=1.0))),
        selection=rule,
        aggregation=FedAvg(weighting=weighting),  # type: ignore[arg-type]
        evaluate=Cadence(every=10**9),
    )


@every_rule
def test_contract_a_run_asks_only_those_who_are_up(rule: Any) -> None:
    task = blob_task(12)
    final, records = run(task, plan_of(rule))
    assert all(np.isin(r.asked, r.up).all() for r in records)
    assert sum(len(r.asked) for r in records) > 0
    assert not torch.equal(final.model, task.layout.flatten(task.module))


REMEMBERS = ["rpow-d", "low-loss, last", "afl", "divfl", "divfl, represent", "oort", "oort, by speed", "oort, greedy"]


@pytest.mark.parametrize("rule", [RULES[name] for name in REMEMBERS], ids=REMEMBERS)
def test_contract_a_run_saved_and_restored_half_way_ends_the_same(rule: Selection) -> None:
    task = blob_task(9)
    plan = plan_of(rule, rounds=5)
    whole, _ = run(task, plan)
    half, _ = run(task, replace(plan, rounds=2))
    final, _ = run(task, plan, state=again(half))
    assert torch.equal(final.model, whole.model)


@pytest.mark.parametrize("name", ["cpow-d", "divfl, full", "optimal"])
def test_engine_every_engine_chooses_the_same(name: str, any_engine: Callable[[], Engine]) -> None:
    task = blob_task(9)
    expected, before = run(task, plan_of(RULES[name], rounds=3))
    final, after = run(task, plan_of(RULES[name], rounds=3), engine=any_engine())
    assert [r.asked.tolist() for r in before] == [r.asked.tolist() for r in after]
    assert torch.allclose(final.model, expected.model, rtol=0, atol=1e-10)
