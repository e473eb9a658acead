"""Availability: who is up, and that it depends on nothing but (seed, client, round)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleet_claims import (
    WAITING,
    assert_asks_who_is_up_now,
    assert_halves_lose_the_same,
    assert_time_goes_on,
    recording,
    trace_of,
    view_of,
)
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.catalogue import catalogue
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems_with
from turnout.errors import ConfigError
from turnout.fleet import (
    Always,
    Appealed,
    Bernoulli,
    Cyclic,
    Diurnal,
    Fleet,
    HalfAndHalf,
    Markov,
    Never,
    Recorded,
    ReplayedAvailability,
    Resampled,
)
from turnout.fleet.availability.resampled import last_draw
from turnout.local import SGD
from turnout.protocols import Availability
from turnout.selection import Uniform

LABELS = np.eye(5, dtype=np.int64)[np.arange(40) % 5] * 7
PAST = recording([(0, 1, 1, 1, 1.0, False)], rounds=30, clients=40, up=np.random.default_rng(0).random((30, 40)) < 0.4)
RULES: dict[str, Any] = {
    "always": Always(),
    "appealed": Appealed(others=Bernoulli(prob=0.6)),
    "bernoulli": Bernoulli(prob=0.4),
    "cyclic": Cyclic(groups=3),
    "diurnal": Diurnal(peak=0.9, trough=0.1, zones=4),
    "half-and-half": HalfAndHalf(),
    "journal": ReplayedAvailability(folder=PAST),
    "markov": Markov(join=0.2, leave=0.2),
    "never": Never(count=7, others=Bernoulli(prob=0.8)),
    "recorded": Recorded(trace=trace_of(*((c, 5.0 * c, 5.0 * c + 60) for c in range(40))), round_seconds=10.0),
    "resampled": Resampled(size=11, every=3, settle=2),
}
SEEDED = sorted(set(RULES) - {"always", "journal", "recorded"})


def test_contract_every_process_is_among_these() -> None:
    assert sorted(RULES) == sorted(catalogue("availability"))


@pytest.mark.parametrize("name", RULES)
def test_contract_up_is_ascending_and_nobody_twice(name: str) -> None:
    for round in range(1, 30):
        up = RULES[name].up(view_of(40, round))
        assert up.dtype == np.int64
        assert (np.diff(up) > 0).all()
        assert np.isin(up, np.arange(40)).all()


@pytest.mark.parametrize("name", RULES)
def test_contract_those_who_are_gone_are_never_up(name: str) -> None:
    there = np.arange(0, 40, 3)
    seen = [RULES[name].up(view_of(40, round, there=there)) for round in range(1, 40)]
    assert all(np.isin(up, there).all() for up in seen)
    assert any(len(up) for up in seen)


@pytest.mark.parametrize("name", RULES)
def test_contract_who_is_up_does_not_depend_on_what_was_asked_before(name: str) -> None:
    rounds = np.arange(1, 25)
    forwards = {r: RULES[name].up(view_of(40, int(r))).tolist() for r in rounds}
    backwards = {r: RULES[name].up(view_of(40, int(r))).tolist() for r in rounds[::-1]}
    assert forwards == backwards


@pytest.mark.parametrize("name", SEEDED)
def test_contract_another_seed_is_another_fleet(name: str) -> None:
    one, two = ([RULES[name].up(view_of(40, r, seed=s)).tolist() for r in range(1, 9)] for s in (0, 1))
    assert one != two


@pytest.mark.parametrize("name", ["bernoulli", "diurnal", "markov"])
def test_property_a_clients_luck_does_not_depend_on_how_many_there_are(name: str) -> None:
    for round in (1, 7, 30):
        few, many = RULES[name].up(view_of(10, round)), RULES[name].up(view_of(1000, round))
        assert np.array_equal(few, many[many < 10])


def test_identity_certain_coins_are_always_and_never() -> None:
    assert np.array_equal(Bernoulli(prob=1.0).up(view_of(30)), Always().up(view_of(30)))
    assert len(Bernoulli(prob=0.0).up(view_of(30))) == 0
    assert len(Bernoulli(profile="labels", least=1.0).up(view_of(40, labels=LABELS))) == 40


def test_property_each_client_has_its_own_probability() -> None:
    prob = (0.1, 0.5, 0.9)
    ups = np.zeros(3)
    for round in range(3000):
        ups[Bernoulli(prob=prob).up(view_of(3, round))] += 1
    assert np.allclose(ups / 3000, prob, atol=0.04)


def test_golden_the_label_profile_by_hand() -> None:
    counts = np.array([[3, 4, 0, 0], [0, 1, 0, 9], [0, 0, 2, 0], [0, 0, 0, 5]])  # lowest labels 0, 1, 2, 3
    rule = Bernoulli(profile="labels", least=0.1)
    assert np.allclose(rule.probability(np.arange(4), view_of(4, labels=counts)), [0.1, 0.4, 0.7, 1.0])
    there = rule.probability(np.array([1, 3]), view_of(4, labels=counts, there=[1, 3]))
    assert np.allclose(there, [0.4, 1.0])


def test_golden_a_subset_is_drawn_each_round_at_first_and_then_every_few() -> None:
    assert [last_draw(t, 5, 5) for t in range(1, 17)] == [1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 11, 11, 11, 11, 11, 16]
    assert [last_draw(t, 2, 0) for t in range(1, 6)] == [1, 1, 3, 3, 5]
    sets = [tuple(Resampled(size=6).up(view_of(30, t))) for t in range(1, 17)]
    assert len(set(sets)) == 5 + 3
    assert sets[5] == sets[9] != sets[10] == sets[14]
    assert all(len(up) == 6 for up in sets)


def test_identity_a_subset_of_all_is_always() -> None:
    assert np.array_equal(Resampled(size=30).up(view_of(30, 7)), np.arange(30))


def test_property_every_client_is_drawn_as_often_as_any_other() -> None:
    counts = np.zeros(10)
    for round in range(1, 2001):
        counts[Resampled(size=3, every=1, settle=0).up(view_of(10, round))] += 1
    assert np.allclose(counts / 2000, 0.3, atol=0.05)


def test_golden_halves_take_turns_and_lose_a_fifth() -> None:
    assert_halves_lose_the_same(HalfAndHalf())


def test_identity_whole_halves_are_two_cyclic_groups_by_id() -> None:
    for round in range(1, 6):
        halves = HalfAndHalf(absent=0.0).up(view_of(9, round))
        first = np.arange(4) if round % 2 else np.arange(4, 9)
        assert np.array_equal(halves, first)
        even = HalfAndHalf(absent=0.0).up(view_of(8, round))
        assert np.array_equal(even, Cyclic(groups=2, grouping="ids").up(view_of(8, round)))


def test_identity_one_group_is_always() -> None:
    assert np.array_equal(Cyclic(groups=1).up(view_of(12, 5)), np.arange(12))


def test_identity_a_run_with_one_group_is_the_run_without_a_fleet() -> None:
    task, plan = blob_task(8), {"local": SGD(lr=0.1, steps=2, batch_size=4), "rounds": 5}
    selection = Uniform(cohort_size=3)
    plain, _ = run(task, Plan(**plan, selection=selection))  # type: ignore[arg-type]
    cyclic, records = run(task, Plan(**plan, selection=selection, fleet=Fleet(availability=Cyclic(groups=1))))  # type: ignore[arg-type]
    assert (plain.model == cyclic.model).all()
    assert all(len(record.asked) == 3 for record in records[1:])


@settings(max_examples=40)
@given(clients=st.integers(1, 40), data=st.data(), seed=st.integers(0, 5))
def test_property_every_client_is_offered_exactly_once_per_cycle(clients: int, data: st.DataObject, seed: int) -> None:
    groups = data.draw(st.integers(1, clients))
    order = data.draw(st.sampled_from(["ascending", "drawn"]) | st.permutations(range(groups)).map(tuple))
    labels = np.eye(4, dtype=np.int64)[np.arange(clients) * 7 % 4]
    grouping = data.draw(st.sampled_from(["random", "labels", "ids"]))
    rule = Cyclic(groups=groups, grouping=grouping, order=order)  # type: ignore[arg-type]
    for cycle in range(3):
        rounds = range(1 + cycle * groups, 1 + (cycle + 1) * groups)
        offered = [rule.up(view_of(clients, t, seed=seed, labels=labels)) for t in rounds]
        assert np.array_equal(np.sort(np.concatenate(offered)), np.arange(clients))
        assert max(map(len, offered)) - min(map(len, offered)) <= 1


def test_identity_one_client_a_group_and_one_step_is_incremental_gradient_descent() -> None:
    pulls, order = [1.0, -2.0, 4.0, 0.5], (2, 0, 3, 1)
    task = quadratic_task([1.0, 3.0, 0.5, 2.0], [[pull] for pull in pulls], [1, 2, 3, 4])
    fleet = Fleet(availability=Cyclic(groups=4, grouping="ids", order=order))
    final, records = run(task, Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=12, fleet=fleet))
    x = 0.0
    for client in order * 3:
        x -= 0.1 * ([1.0, 3.0, 0.5, 2.0][client] * x - pulls[client])
    assert float(final.model) == pytest.approx(x, rel=0, abs=1e-12)
    assert [record.answered.tolist() for record in records[1:]] == [[client] for client in order * 3]


def test_golden_a_given_order_is_followed_and_repeats() -> None:
    rule = Cyclic(groups=3, grouping="ids", order=(2, 0, 1))
    assert [rule.up(view_of(6, t)).tolist() for t in range(1, 5)] == [[4, 5], [0, 1], [2, 3], [4, 5]]


def test_golden_groups_by_label_hold_like_clients() -> None:
    dominant = np.array([2, 0, 1, 0, 2, 1])
    counts = np.eye(3, dtype=np.int64)[dominant] * 5 + 1
    rule = Cyclic(groups=3, grouping="labels")
    assert [rule.up(view_of(6, t, labels=counts)).tolist() for t in (1, 2, 3)] == [[1, 3], [2, 5], [0, 4]]


@settings(max_examples=30)
@given(prob=st.floats(0.01, 0.99), round=st.integers(1, 60), seed=st.integers(0, 9))
def test_identity_a_chain_without_memory_is_bernoulli(prob: float, round: int, seed: int) -> None:
    chain = Markov(join=prob, leave=1.0 - prob)
    assert np.array_equal(
        chain.up(view_of(50, round, seed=seed)), Bernoulli(prob=prob).up(view_of(50, round, seed=seed))
    )


def walked(join: float, leave: float, clients: int, rounds: int) -> Iterator[Any]:
    """The chain step by step, as a stored state would go."""
    streams, ids = view_of(clients).streams, np.arange(clients)
    up = streams.uniforms("availability", 0, ids)[:, 0] < join / (join + leave)
    for round in range(1, rounds + 1):
        draw = streams.uniforms("availability", round, ids)[:, 0]
        up = draw < np.where(up, 1.0 - leave, join)
        yield np.flatnonzero(up)


@pytest.mark.parametrize(("join", "leave"), [(0.1, 0.3), (0.02, 0.05), (0.9, 0.8), (1.0, 1.0), (0.0, 0.4), (0.3, 0.0)])
def test_golden_looking_back_is_walking_forward(join: float, leave: float) -> None:
    for round, expected in enumerate(walked(join, leave, 200, 40), 1):
        assert np.array_equal(Markov(join=join, leave=leave).up(view_of(200, round)), expected), round


def test_property_a_chain_has_its_moves_and_its_share_of_time() -> None:
    states = np.zeros((300, 400), dtype=bool)
    for place in range(400):
        states[Markov(join=0.1, leave=0.3).up(view_of(300, place + 1)), place] = True
    before, after = states[:, :-1], states[:, 1:]
    assert abs(states.mean() - 0.25) < 0.02
    assert abs(after[before].mean() - 0.7) < 0.02
    assert abs(after[~before].mean() - 0.1) < 0.01


@settings(max_examples=30)
@given(prob=st.floats(0, 1), round=st.integers(1, 60), zones=st.integers(1, 24))
def test_identity_a_day_without_a_rhythm_is_bernoulli(prob: float, round: int, zones: int) -> None:
    flat = Diurnal(peak=prob, trough=prob, zones=zones)
    assert np.array_equal(flat.up(view_of(50, round)), Bernoulli(prob=prob).up(view_of(50, round)))


def test_golden_the_hours_of_a_day_by_hand() -> None:
    rule = Diurnal(peak=0.9, trough=0.1, period_rounds=8)
    at = [rule.probability(np.arange(1), view_of(1, round))[0] for round in (2, 4, 6, 8, 10)]
    assert np.allclose(at, [0.9, 0.5, 0.1, 0.5, 0.9])
    by_clock = Diurnal(peak=0.9, trough=0.1, period_seconds=86_400.0)
    at = [by_clock.probability(np.arange(1), view_of(1, 3, seconds=hour * 3600.0))[0] for hour in (0, 6, 12, 18, 30)]
    assert np.allclose(at, [0.5, 0.9, 0.5, 0.1, 0.9])


def test_golden_zones_are_spread_over_the_day() -> None:
    probs = Diurnal(peak=1.0, trough=0.0, period_rounds=4, zones=4).probability(np.arange(400), view_of(400, 4))
    assert set(np.round(probs, 9)) == {0.0, 0.5, 1.0}
    assert np.allclose([np.mean(np.isclose(probs, p)) for p in (0.0, 0.5, 1.0)], [0.25, 0.5, 0.25], atol=0.08)


def test_identity_nobody_excluded_is_the_wrapped_process() -> None:
    wrapped = Bernoulli(prob=0.5)
    for round in range(1, 6):
        expected = wrapped.up(view_of(30, round))
        assert np.array_equal(Never(count=0, others=wrapped).up(view_of(30, round)), expected)
        assert np.array_equal(Never(clients=(), others=wrapped).up(view_of(30, round)), expected)


def test_contract_the_excluded_are_the_same_for_ever() -> None:
    ups = [Never(count=8).up(view_of(20, round)).tolist() for round in range(1, 30)]
    assert len(ups[0]) == 12
    assert all(up == ups[0] for up in ups)
    assert Never(clients=(3, 5)).up(view_of(7)).tolist() == [0, 1, 2, 4, 6]
    assert np.array_equal(Never(labels=(1, 4)).up(view_of(40, labels=LABELS)) % 5, np.tile([0, 2, 3], 8))


def test_contract_too_few_are_asked_and_nobody_waits_for_more() -> None:
    assert_asks_who_is_up_now()


def test_contract_time_goes_on_when_nobody_is_up() -> None:
    assert_time_goes_on(WAITING)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(prob=-0.1), r"prob in \[0, 1\]; got -0\.1"),
        (lambda: Bernoulli(least=2.0), r"least in \[0, 1\]; got 2\.0\. Change fleet\.availability\.least"),
        (lambda: Resampled(size=0), r"size >= 1; got 0\. Change fleet\.availability\.size"),
        (lambda: Resampled(size=3, every=0), r"every >= 1; got 0"),
        (lambda: HalfAndHalf(absent=1.0), r"absent in \[0, 1\); got 1\.0"),
        (lambda: Cyclic(groups=0), r"groups >= 1; got 0"),
        (lambda: Cyclic(groups=3, order=(0, 1, 1)), r"each group 0…2 once; got \[0, 1, 1\]"),
        (lambda: Markov(join=1.2), r"join in \[0, 1\]; got 1\.2"),
        (lambda: Markov(join=0.0, leave=0.0), r"join \+ leave > 0; got 0"),
        (lambda: Diurnal(peak=0.2, trough=0.3), r"trough <= peak; got 0\.3 and 0\.2"),
        (lambda: Diurnal(period_rounds=0.0), r"period_rounds > 0; got 0\.0"),
        (lambda: Diurnal(zones=0), r"zones >= 1; got 0"),
        (lambda: Never(), r"one of count, clients and labels; got none"),
        (lambda: Never(count=1, clients=(2,)), r"got count and clients"),
        (lambda: Never(count=-1), r"count >= 0; got -1"),
        (lambda: Recorded(trace="x.csv", round_seconds=0.0), r"round_seconds > 0; got 0\.0"),
        (lambda: Fleet(availability=Recorded(trace="x.csv")), r"Recorded needs a clock.*has none"),
        (lambda: Fleet(availability=Never(count=1, others=Diurnal(period_seconds=60.0))), r"this fleet has none"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Bernoulli(profile="labels"), r'profile = "labels" needs the label counts.*profile to "given"'),
        (Cyclic(groups=2, grouping="labels"), r'grouping = "labels" needs the label counts.*grouping to "random"'),
        (Never(labels=(1,)), r"Never with labels needs the label counts"),
    ],
)
def test_error_a_process_that_needs_labels_says_so(rule: Availability, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rule.up(view_of(5))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Bernoulli(prob=(0.1, 0.2)), r"one per client; got 2 for 5 clients\. Change fleet\.availability\.prob"),
        (Cyclic(groups=6), r"groups <= the number of clients; got 6 > 5\. Set fleet\.availability\.groups to 5"),
        (Resampled(size=6), r"size <= the number of clients; got 6 > 5\. Set fleet\.availability\.size to 5"),
        (Never(count=6), r"count <= the number of clients; got 6 > 5\. Set fleet\.availability\.count to 5"),
        (Never(clients=(0, 5)), r"clients in 0…4; got 5\. Change fleet\.availability\.clients"),
        (Never(labels=(4,)), r"labels in 0…3; got 4\. Change fleet\.availability\.labels"),
        (Never(count=1, others=Cyclic(groups=9)), r"Cyclic needs groups <= the number of clients; got 9 > 5"),
        (
            Recorded(trace=trace_of((9, 0, 1)), round_seconds=1.0),
            r"these 5 clients; the trace has client 9\. Set .*drawn",
        ),
        (Recorded(trace="nowhere.csv", round_seconds=1.0), r"There is no trace nowhere\.csv"),
    ],
)
def test_error_a_process_that_does_not_fit_the_federation_is_refused_before_the_first_round(
    rule: Availability, message: str
) -> None:
    population = view_of(5, labels=np.ones((5, 4), dtype=np.int64)).population
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, fleet=Fleet(availability=rule))
    (said,) = [found.message for found in problems_with(plan, population)]
    assert re.search(message, said)
    fitting = (Bernoulli(prob=(0.5,) * 5), Cyclic(groups=5), Resampled(size=5), Never(clients=(4,)), Never(labels=(3,)))
    for good in fitting:
        assert not list(problems_with(replace(plan, fleet=Fleet(availability=good)), population))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,40,60,up", "{path}, line 3: client 0 has overlapping intervals: 40 is before the end"),
        (
            "7,40,60,up",
            "Recorded needs a trace of these 5 clients; {path}, line 3: there is no client 7; ids go from 0",
        ),
    ],
)
def test_error_a_bad_trace_is_refused_before_the_first_round_with_its_line(
    row: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"client,start,end,state\n0,0,50,up\n{row}\n")
    plan = Plan(
        local=SGD(lr=0.1, steps=1),
        rounds=1,
        fleet=Fleet(availability=Recorded(trace=path, round_seconds=1.0)),
    )
    (said,) = [found.message for found in problems_with(plan, view_of(5).population)]
    assert said.startswith(message.format(path=path))


KNOWN = {
    "always": Always(),
    "bernoulli": Bernoulli(prob=(0.1, 0.9, 0.5, 0.0, 1.0)),
    "diurnal": Diurnal(peak=0.9, trough=0.1, period_rounds=7, zones=3),
    "markov": Markov(join=0.3, leave=0.2),
    "resampled": Resampled(size=2, every=3, settle=1),
}


@pytest.mark.parametrize("rule", KNOWN.values(), ids=KNOWN.keys())
def test_property_clients_are_up_as_often_as_the_rule_says(rule: Any) -> None:
    seeds, ids = 4000, np.arange(5)
    for round in (1, 4):
        often, views = np.zeros(5), [view_of(5, round, seed=seed) for seed in range(seeds)]
        for here in views:
            often[rule.up(here)] += 1
        said = np.mean([rule.probability(ids, here) for here in views], axis=0)
        assert np.abs(often / seeds - said).max() < 4 * np.sqrt(0.25 / seeds)
        assert rule.probability(ids[[3, 1]], views[0]).tolist() == rule.probability(ids, views[0])[[3, 1]].tolist()
