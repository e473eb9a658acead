"""Membership: who comes and goes, and what it does to the objective."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines import Spy
from tests.support.fleet_claims import view_of
from tests.support.optional import present
from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.tasks import quadratic_task
from turnout.aggregation import SchemeB
from turnout.coordinator import Cadence, Plan, Turnover
from turnout.coordinator.turnover import arrival_boost, should_exclude, turnover_events
from turnout.engine import Task
from turnout.errors import ConfigError
from turnout.fleet import Complete, Deadline, Fleet, Fraction, Random, Scheduled
from turnout.fleet.membership.random import NEVER, geometric_draws
from turnout.local import SGD
from turnout.local.schedule import Inverse
from turnout.protocols import Work
from turnout.requests import Evaluate
from turnout.server import SGD as ServerSGD

GD = SGD(lr=0.1, steps=1, batches="full")
H, E, N = [1.0, 2.0, 0.5, 1.5], [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [-1.0, 1.0]], [1, 3, 2, 4]


def task() -> Task:
    return quadratic_task(H, E, N)


def optimum(clients: Any) -> Any:
    """argmin Σ n_i F_i over these clients."""
    h, e, n = np.array(H)[clients], np.array(E)[clients], np.array(N, dtype=float)[clients]
    return (n[:, None] * e).sum(0) / (n * h).sum()


VANILLA, EXCLUDE = Turnover(reboot="vanilla"), Turnover(on_departure="exclude")


def plan_of(membership: Any, rounds: int = 10, turnover: Turnover | None = None, **more: Any) -> Plan:
    fleet = Fleet(membership=membership)
    return Plan(local=GD, rounds=rounds, fleet=fleet, turnover=turnover or Turnover(), **more)


def test_identity_nobody_comes_or_goes() -> None:
    plain, before = run(task(), Plan(local=GD, rounds=5))
    for quiet in (Scheduled(), Random(present=1.0, departure_prob=0.0)):
        final, records = run(task(), plan_of(quiet, 5))
        assert torch.equal(final.model, plain.model)
        assert final.restart == 0
        assert all(np.array_equal(a.coefficients, b.coefficients) for a, b in zip(before, records, strict=True))


def test_golden_an_arrival_changes_weights_restarts_schedules_and_is_boosted() -> None:
    final, records = run(task(), plan_of(Scheduled(arrivals={3: 4}), 8))
    assert records[3].asked.tolist() == [0, 1, 2]
    assert np.allclose(records[3].coefficients, np.array([1, 3, 2]) / 6)
    assert records[4].events == ("client 3 arrived",)
    for j in (1, 2, 3, 4):
        boost = np.array([1, 1, 1, 1 + 2 / j**2])
        assert np.allclose(records[3 + j].coefficients, np.array(N) / 10 * boost)
    assert final.restart == 3  # schedules count from round 4 again
    assert not any(record.events for record in records if record.round != 4)


def test_identity_a_boost_of_one_is_a_vanilla_reboot() -> None:
    fast, _ = run(task(), plan_of(Scheduled(arrivals={3: 3})))
    one, _ = run(task(), plan_of(Scheduled(arrivals={3: 3}), turnover=Turnover(boost_start=1.0)))
    vanilla, _ = run(task(), plan_of(Scheduled(arrivals={3: 3}), turnover=VANILLA))
    assert torch.equal(one.model, vanilla.model)
    assert not torch.equal(fast.model, vanilla.model)
    assert not Turnover(boost_start=1.0).reboots_fast
    assert Turnover().reboots_fast


def test_golden_the_boost_by_hand() -> None:
    since = np.array([0, 1, 2, 3, 10])
    assert np.allclose(arrival_boost(since, 3.0, 2.0), [1, 3, 1.5, 1 + 2 / 9, 1.02])
    assert np.allclose(arrival_boost(since, 2.0, 1.0), [1, 2, 1.5, 4 / 3, 1.1])
    assert (VANILLA.boost(since) == 1).all()


def test_golden_a_departed_client_stays_in_the_objective_or_leaves_it() -> None:
    _, kept = run(task(), plan_of(Scheduled(departures={3: 3}), 4, aggregation=SchemeB()))
    state, dropped = run(task(), plan_of(Scheduled(departures={3: 3}), 4, EXCLUDE, aggregation=SchemeB()))
    assert np.allclose(kept[2].coefficients, np.array(N) / 10)
    assert np.allclose(kept[3].coefficients, np.array([1, 3, 2]) / 10)  # p is not shared out again
    assert np.allclose(dropped[3].coefficients, np.array([1, 3, 2]) / 6)
    assert kept[3].events == ("client 3 left and stays in the objective",)
    assert dropped[3].events == ("client 3 left and is excluded",)
    assert state.restart == 2


@pytest.mark.parametrize(("on_departure", "tested"), [("include", [0, 1, 2, 3]), ("exclude", [0, 1, 2])])
def test_contract_the_test_set_follows_the_objective(on_departure: Any, tested: list[int]) -> None:
    spy = Spy()
    run(task(), plan_of(Scheduled(departures={3: 3}), 4, Turnover(on_departure=on_departure)), engine=spy)
    measured = {r.round: present(r.clients).tolist() for r in spy.asked if isinstance(r, Evaluate)}
    assert measured[2] == [0, 1, 2, 3]
    assert measured[3] == tested


def test_convergence_to_the_optimum_of_those_who_are_there() -> None:
    local, seldom = SGD(lr=0.5, steps=1, batches="full"), Cadence(every=1000)
    for reboot, near in (("vanilla", 1e-8), ("fast", 1e-3)):  # the boost is 1 + 2/j²: still 5e-4 after 60 rounds
        plan = plan_of(Scheduled(arrivals={3: 10}), 70, Turnover(reboot=reboot), evaluate=seldom)  # type: ignore[arg-type]
        arrived, _ = run(task(), replace(plan, local=local))
        assert np.allclose(arrived.model.numpy(), optimum([0, 1, 2, 3]), atol=near)
    leaving = plan_of(Scheduled(departures={1: 10}), 70, EXCLUDE, evaluate=seldom)
    gone, _ = run(task(), replace(leaving, local=local))
    assert np.allclose(gone.model.numpy(), optimum([0, 2, 3]), atol=1e-8)


def test_convergence_the_arrival_of_a_copy_moves_nothing() -> None:
    copies = quadratic_task([1.0, 1.0], [[2.0], [2.0]], [5, 5])
    plan = replace(plan_of(Scheduled(arrivals={1: 60}), 65, VANILLA), local=SGD(lr=0.5, steps=1, batches="full"))
    final, records = run(copies, plan)
    assert abs(float(final.model) - 2.0) < 1e-12
    assert records[60].events == ("client 1 arrived",)


@pytest.mark.parametrize("moving", range(4))
@pytest.mark.parametrize("way", ["arrival", "departure"])
def test_convergence_the_optimum_moves_no_further_than_the_bound(way: str, moving: int) -> None:
    # ‖x* − x̃*‖ ≤ (2√(2L)/µ) · n_l/n · √Γ_l, where n counts l and Γ_l = F_l − min F_l at the optimum without l
    come, go = Scheduled(arrivals={moving: 81}), Scheduled(departures={moving: 81})
    membership, turnover = (come, VANILLA) if way == "arrival" else (go, EXCLUDE)
    local, seldom = SGD(lr=0.5, steps=1, batches="full"), Cadence(every=1000)
    before, after = (
        run(task(), replace(plan_of(membership, rounds, turnover, evaluate=seldom), local=local))[0].model.numpy()
        for rounds in (80, 160)
    )
    without = before if way == "arrival" else after
    gap = 0.5 * H[moving] * ((without - np.array(E[moving]) / H[moving]) ** 2).sum()  # Γ_l
    bound = 2 * np.sqrt(2 * max(H)) / min(H) * N[moving] / sum(N) * np.sqrt(gap)
    moved = np.linalg.norm(before - after)
    assert 1e-6 < moved <= bound
    assert np.allclose(without, optimum([c for c in range(4) if c != moving]), atol=1e-8)


def test_golden_the_rule_of_departures_by_hand() -> None:
    # 49 rounds done, 51 to go: 51 ≥ c·√(Γ·49) = 7c√Γ
    assert should_exclude(50.0, round=50, rounds=100, constant=1.0)  # 49.5
    assert not should_exclude(54.0, round=50, rounds=100, constant=1.0)  # 51.4
    assert not should_exclude(50.0, round=50, rounds=100, constant=1.1)
    assert should_exclude(0.0, round=100, rounds=100, constant=1.0)
    assert should_exclude(1e9, round=1, rounds=1, constant=1.0)  # τ₀ = 0
    assert not should_exclude(float("nan"), round=5, rounds=100, constant=1.0)


@given(
    gap=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    round=st.integers(1, 200),
    later=st.integers(0, 100),
    rounds=st.integers(1, 300),
    constant=st.floats(0, 10),
)
def test_property_the_rule_is_monotone(
    gap: float, more: float, round: int, later: int, rounds: int, constant: float
) -> None:
    excluded = should_exclude(gap, round=round, rounds=rounds, constant=constant)
    if excluded:
        assert should_exclude(gap, round=round, rounds=rounds + later, constant=constant)
    else:
        assert not should_exclude(gap + more, round=round, rounds=rounds, constant=constant)
        assert not should_exclude(gap, round=round + later, rounds=rounds, constant=constant)


@pytest.mark.parametrize(("constant", "excluded"), [(1.0, True), (1e3, False)])
def test_golden_auto_estimates_the_gap_by_what_a_client_would_gain_alone(constant: float, excluded: bool) -> None:
    # one exact step reaches client 1's own minimum: Γ = (h/2)‖x − e/h‖²
    local = SGD(lr=0.5, steps=1, batches="full")  # h_1 = 2
    membership, turnover = Scheduled(departures={1: 6}), Turnover(on_departure="auto", departure_constant=constant)
    before, _ = run(task(), Plan(local=local, rounds=5))
    gap = 1.0 * ((before.model.numpy() - np.array(E[1]) / 2) ** 2).sum()
    assert should_exclude(gap, round=6, rounds=30, constant=constant) == excluded
    edge = 25 / np.sqrt(gap * 5)  # T − τ₀ = 25, τ₀ = 5
    final, records = run(task(), replace(plan_of(membership, 30, turnover), local=local))
    assert records[6].events == (f"client 1 left and {'is excluded' if excluded else 'stays in the objective'}",)
    assert records[6].costs.probe_evaluations == 2 * N[1]
    assert final.restart == (5 if excluded else 0)
    for factor, expected in ((0.999, True), (1.001, False)):
        at_edge = replace(turnover, departure_constant=edge * factor)
        _, records = run(task(), replace(plan_of(membership, 30, at_edge), local=local))
        assert ("is excluded" in records[6].events[0]) == expected


def departures_under(local: SGD, fleet_work: Work, left_after: int, constant: float = 1.0, rounds: int = 400) -> Any:
    """Whether client 1 is excluded when it leaves after so many rounds; the model stays where it starts."""
    turnover = Turnover(on_departure="auto", departure_constant=constant)
    fleet = Fleet(membership=Scheduled(departures={1: left_after + 1}), work=fleet_work)
    still, seldom = ServerSGD(lr=1e-12), Cadence(every=10**6)
    plan = Plan(local=local, rounds=rounds, fleet=fleet, turnover=turnover, server=still, evaluate=seldom)
    _, records = run(task(), plan)
    return "is excluded" in records[left_after + 1].events[0]


FALLING = SGD(lr=0.1, schedule=Inverse(), steps=3, batches="full")


@pytest.mark.parametrize("work", [Complete(), Fraction(fraction=0.4), Fraction(fraction=(1.0, 0.0, 1.0, 1.0))])
@pytest.mark.parametrize("left_after", [4, 16, 100])
def test_golden_auto_grows_as_the_root_of_the_rounds_done_under_a_falling_rate_and_cut_work(
    work: Work, left_after: int
) -> None:
    # x = 0 and F_1 = ‖x‖² − e·x: three steps of 0.1 leave (1 − 0.2)⁶ of the gap Γ = ‖e‖²/(2h) = 1
    gap = 1.0 - 0.8**6
    edge = (400 - left_after) / np.sqrt(gap * left_after)  # T − τ₀ = c·√(Γ̂·τ₀)
    assert departures_under(FALLING, work, left_after, edge * 0.999)
    assert not departures_under(FALLING, work, left_after, edge * 1.001)


def test_contract_the_estimate_costs_two_losses_and_one_whole_local_training() -> None:
    membership = Scheduled(departures={1: 3})
    fleet = Fleet(membership=membership, work=Fraction(fraction=0.4), clock=Deadline(seconds_per_step=2.0))
    _, records = run(task(), Plan(local=FALLING, rounds=4, fleet=fleet, turnover=Turnover(on_departure="auto")))
    usual, leaving = records[2].costs, records[3].costs
    assert leaving.probe_evaluations == 2 * N[1]
    assert usual.gradient_evaluations == sum(N)  # round(0.4·3) = 1 step of all samples
    assert leaving.gradient_evaluations == sum(N) - N[1] + 3 * N[1]
    assert leaving.sim_seconds == pytest.approx(usual.sim_seconds + 2 * 2.0 + usual.sim_seconds)


def test_contract_controls_do_not_pull_the_estimate_to_the_others() -> None:
    local = SGD(lr=0.1, steps=3, batches="full", control="average")
    edge = 350 / np.sqrt((1.0 - 0.8**6) * 50)
    assert departures_under(local, Complete(), 50, edge * 0.999)
    assert not departures_under(local, Complete(), 50, edge * 1.001)


def test_contract_the_last_client_stays_in_the_objective() -> None:
    leaving = Scheduled(departures=dict.fromkeys(range(4), 3))
    final, records = run(task(), plan_of(leaving, 5, EXCLUDE))
    assert records[3].events == (
        "client 0 left and is excluded",
        "client 1 left and is excluded",
        "client 2 left and is excluded",
        "client 3 left and stays in the objective",
        "nobody was up",
    )
    assert records[-1].events == ("nobody was up",)
    assert final.members["counted"].tolist() == [False, False, False, True]


def test_contract_a_client_may_leave_and_come_back() -> None:
    membership = Scheduled(departures=({"client": 1, "round": 3},), arrivals=({"client": 1, "round": 6},))
    _, records = run(task(), plan_of(membership, 8))
    there = [1 in record.asked for record in records[1:]]
    assert there == [True, True, False, False, False, True, True, True]


def test_contract_a_round_that_was_left_out_loses_no_change() -> None:
    membership = Scheduled(arrivals={2: 5})
    assert membership.members(view_of(4, 4)).tolist() == [0, 1, 3]
    assert membership.members(view_of(4, 9)).tolist() == [0, 1, 2, 3]


def test_contract_many_moves_are_told_as_a_number() -> None:
    assert turnover_events([4, 7], "arrived") == ["client 4 arrived", "client 7 arrived"]
    assert turnover_events(range(11), "left and is excluded") == ["11 clients left and are excluded"]
    stay = turnover_events(range(11), "left and stays in the objective")
    assert stay == ["11 clients left and stay in the objective"]


def test_contract_a_resumed_run_goes_on_with_the_same_members() -> None:
    plan = plan_of(Random(present=0.5, arrival_prob=0.2, departure_prob=0.1), 12, Turnover(on_departure="auto"))
    whole, _ = run(task(), plan, seed=3)
    half, _ = run(task(), replace(plan, rounds=6), seed=3)
    final, _ = run(task(), plan, seed=3, state=again(half))
    assert np.array_equal(final.members["present"], whole.members["present"])
    assert np.array_equal(final.members["arrived"], whole.members["arrived"])


@settings(max_examples=25)
@given(seed=st.integers(0, 99), present=st.floats(0.05, 1), arrive=st.floats(0, 1), leave=st.floats(0, 1))
def test_property_random_members_come_once_and_go_once(seed: int, present: float, arrive: float, leave: float) -> None:
    rule = Random(present=present, arrival_prob=arrive, departure_prob=leave)
    there = set(rule.members(view_of(12, 0, seed=seed)).tolist())
    assert there == set(range(int(np.ceil(present * 12))))
    left: set[Any]
    came, left = set(there), set()
    for round in range(1, 25):
        now = set(rule.members(view_of(12, round, seed=seed)).tolist())
        arrivals, departures = now - there, there - now
        assert not arrivals & came
        assert departures <= there
        assert not departures & left
        came, left, there = came | arrivals, left | departures, (there | arrivals) - departures


def test_property_waiting_times_are_geometric() -> None:
    draws = (np.arange(100_000) + 0.5) / 100_000
    waits = geometric_draws(draws, 0.2)
    assert waits.min() == 1
    assert waits.mean() == pytest.approx(5.0, rel=0.01)
    assert (waits == 1).mean() == pytest.approx(0.2, abs=1e-4)
    assert (geometric_draws(draws[:3], 0.0) == NEVER).all()
    assert (geometric_draws(draws[:3], 1.0) == 1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scheduled(arrivals={3: 0}), r"clients from 0 and rounds from 1; got client 3 in round 0"),
        (
            lambda: Scheduled(arrivals=({"client": 3},)),
            r"arrivals as a table of client = round.*Change fleet\.membership",
        ),
        (
            lambda: Scheduled(arrivals={3: 5}, departures={3: 5}),
            r"client 3 comes and goes in one round \(rounds 5 and 5",
        ),
        (
            lambda: Scheduled(departures=({"client": 1, "round": 3}, {"client": 1, "round": 6})),
            r"client 1 departs twice in a row \(rounds 3 and 6\)\. Change fleet\.membership\.departures",
        ),
        (lambda: Turnover(boost_start=0.5), r"boost_start >= 1; got 0\.5"),
        (lambda: Turnover(departure_constant=-1.0), r"departure_constant >= 0; got -1\.0"),
        (lambda: Random(present=0.0), r"present in \(0, 1\]; got 0\.0"),
        (lambda: Random(arrival_prob=1.5), r"arrival_prob in \[0, 1\]; got 1\.5"),
        (
            lambda: run(task(), plan_of(Scheduled(arrivals={9: 3}))),
            r"clients in 0…3; got 9\. Change fleet\.membership\.arr",
        ),
        (lambda: run(task(), plan_of(Scheduled(departures={9: 3}))), r"got 9\. Change fleet\.membership\.departures"),
        (
            lambda: run(task(), plan_of(Scheduled(arrivals=dict.fromkeys(range(4), 2)))),
            r"at least one client at the start",
        ),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
