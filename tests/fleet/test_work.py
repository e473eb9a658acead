"""Work: how much of what was asked gets done."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleet_claims import recording, view_of
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, SchemeA, SchemeB, SchemeC
from turnout.catalogue import catalogue
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.coordinator.records import NOBODY_EVER
from turnout.errors import ConfigError
from turnout.fleet import Complete, Fleet, Fraction, ReplayedWork, RuanTraces, Stragglers
from turnout.fleet.work.ruan_traces import DEVIATIONS, MEANS, NEVER_IDLE, beta_parameters, rounded
from turnout.local import SGD, Meta, Moreau

PAST = recording([(client, 1 + client % 9, 10, client, 1.0, False) for client in range(10)], rounds=50, clients=20)
RULES: dict[str, Any] = {
    "complete": Complete(),
    "fraction": Fraction(fraction=0.6, spread=0.3),
    "journal": ReplayedWork(folder=PAST),
    "ruan-traces": RuanTraces(),
    "stragglers": Stragglers(prob=0.5),
}


def test_contract_every_model_is_among_these() -> None:
    assert sorted(RULES) == sorted(catalogue("work"))


@settings(max_examples=30)
@given(asked=st.lists(st.integers(0, 30), min_size=1, max_size=20), round=st.integers(1, 50), data=st.data())
def test_property_nobody_does_more_than_was_asked_or_less_than_nothing(
    asked: list[int], round: int, data: st.DataObject
) -> None:
    rule = RULES[data.draw(st.sampled_from(sorted(RULES)))]
    steps = np.array(asked)
    done = rule.done(steps, np.arange(len(steps)), view_of(20, round))
    assert done.dtype == np.int64
    assert (done >= 0).all()
    assert (done <= steps).all()


@pytest.mark.parametrize("name", RULES)
def test_property_a_clients_work_does_not_depend_on_who_else_is_asked(name: str) -> None:
    asked = np.full(20, 10)
    for round in (1, 5):
        whole = RULES[name].done(asked, np.arange(20), view_of(20, round))
        part = RULES[name].done(asked[:3], np.array([2, 9, 17]), view_of(20, round))
        assert np.array_equal(part, whole[[2, 9, 17]])


def test_identity_nothing_in_the_way_is_complete_work() -> None:
    asked = np.arange(1, 11)
    for rule in (Fraction(fraction=1.0), RuanTraces(traces=1), Stragglers(prob=0.0)):
        assert np.array_equal(rule.done(asked, np.arange(10), view_of(10)), asked)
    assert not Fraction(fraction=0.0).done(asked, np.arange(10), view_of(10)).any()


def test_identity_complete_traces_make_the_schemes_fedavg() -> None:
    task, local = blob_task(6), SGD(lr=0.1, steps=3, batch_size=4)
    fleet = Fleet(work=RuanTraces(traces=1))
    expected, _ = run(task, Plan(local=local, rounds=3, aggregation=FedAvg()))
    for scheme in (SchemeB(), SchemeC()):
        final, _ = run(task, Plan(local=local, rounds=3, aggregation=scheme, fleet=fleet))
        assert (final.model - expected.model).abs().max() < 1e-12


def test_identity_nobody_does_anything_and_nothing_changes() -> None:
    task, local = blob_task(6), SGD(lr=0.1, steps=3, batch_size=4)
    for scheme in (SchemeA(), SchemeB(), SchemeC()):
        plan = Plan(local=local, rounds=2, aggregation=scheme, fleet=Fleet(work=Fraction(fraction=0.0)))
        final, records = run(task, plan)
        assert (final.model == task.layout.flatten(task.module)).all()
        assert [record.events for record in records[1:]] == [("nobody answered",), ("nobody answered", NOBODY_EVER)]


def test_golden_the_beta_of_each_trace() -> None:
    # a and b of Beta with mean m and deviation d, as published with two decimals
    published = [(5.64, 1.85), (10.93, 5.33), (9.66, 7.23), (5.76, 4.47), (1.37, 0.29), (2.12, 0.74), (3.31, 3.15)]
    for which, expected in enumerate(published, 1):
        assert np.allclose(beta_parameters(MEANS[which], DEVIATIONS[which]), expected, atol=0.006)


@pytest.mark.parametrize("which", range(1, 8))
def test_golden_idling_keeps_the_mean_and_the_deviation(which: int) -> None:
    idle = 0.05
    a, b = beta_parameters(MEANS[which], DEVIATIONS[which], idle)
    mean, second = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    assert (1 - idle) * mean == pytest.approx(MEANS[which])
    assert (1 - idle) * second == pytest.approx(MEANS[which] ** 2 + DEVIATIONS[which] ** 2)


def test_property_devices_follow_their_trace() -> None:
    rule, ids = RuanTraces(), np.arange(800)
    trace = rule.assigned(ids, view_of(800))
    assert np.allclose(np.bincount(trace, minlength=8) / 800, 1 / 8, atol=0.04)
    assert np.array_equal(trace, rule.assigned(ids, view_of(800, 77)))
    shares = np.stack([rule.fractions(ids, view_of(800, round)) for round in range(1, 101)])
    for which in range(8):
        mine = shares[:, trace == which]
        assert mine.mean() == pytest.approx(MEANS[which], abs=0.01)
        assert mine.std() == pytest.approx(DEVIATIONS[which], abs=0.01)
        assert (mine == 0).mean() == pytest.approx(0.05 if which >= NEVER_IDLE else 0.0, abs=0.01)


def test_golden_rounding_is_to_the_nearest_half_up_within_bounds() -> None:
    share, asked = np.array([0.0, 0.04, 0.1, 0.5, 0.99, 1.0, 0.3]), np.array([5, 5, 5, 5, 5, 5, 0])
    assert rounded(share, asked, 1).tolist() == [1, 1, 1, 3, 5, 5, 0]
    assert rounded(share, asked, 0).tolist() == [0, 0, 1, 3, 5, 5, 0]


def test_contract_the_first_five_traces_are_never_idle() -> None:
    for round in range(1, 60):
        done = RuanTraces(traces=5).done(np.full(200, 2), np.arange(200), view_of(200, round))
        assert (done >= 1).all()


def steps_done(sizes: list[int], local: Any, rounds: int = 20) -> Any:
    """How many local steps clients of these sizes complete in each round, where whole epochs are completed."""
    task = quadratic_task([1.0] * len(sizes), [[1.0]] * len(sizes), sizes)
    plan = Plan(local=local, rounds=rounds, fleet=Fleet(work=RuanTraces(unit="epochs")))
    _, records = run(task, plan)
    return np.stack([record.local_steps for record in records[1:]])


def epochs_done(sizes: list[int]) -> Any:
    """How many epochs of five, in whole and in part, clients of these sizes complete in each round."""
    return steps_done(sizes, SGD(lr=0.01, batch_size=4, epochs=5)) / -(-np.array(sizes) // 4)


def test_golden_whole_epochs_are_completed_and_the_share_does_not_depend_on_how_much_data_there_is() -> None:
    few, many = epochs_done([3, 8, 30, 21, 4, 11]), epochs_done([90, 1, 2, 55, 40, 17])
    assert np.array_equal(few, many)
    assert np.array_equal(few, np.floor(few))
    assert (few.min(), few.max()) == (0, 5)
    rule, ids = RuanTraces(), np.arange(6)
    by_hand = [np.floor(rule.fractions(ids, view_of(6, t)) * 5 + 0.5) for t in range(1, 21)]
    least = (rule.assigned(ids, view_of(6)) < NEVER_IDLE).astype(int)
    assert np.array_equal(few, np.maximum(by_hand, least))


def test_golden_an_epoch_is_one_pass_however_many_gradients_a_solver_takes_from_a_batch() -> None:
    sizes, batches = [3, 8, 30, 21, 4, 11], np.array([1, 2, 8, 6, 1, 3])
    epochs = epochs_done(sizes)
    inner = steps_done(sizes, Moreau(lr=0.01, inner_lr=0.01, inner_steps=3, batch_size=4, epochs=5))
    assert np.array_equal(inner, epochs * batches * 3)
    pairs = steps_done([8, 30, 21], Meta(lr=0.01, inner_lr=0.01, batch_size=4, epochs=6))  # two batches an update
    assert np.array_equal(pairs % 2, np.zeros_like(pairs))
    whole = steps_done([8, 30, 21], SGD(lr=0.01, batch_size=4, epochs=6))
    assert np.array_equal(pairs, whole)


def test_identity_an_epoch_of_one_step_makes_no_difference() -> None:
    task, local = quadratic_task([1.0] * 4, [[1.0]] * 4, [3, 1, 4, 2]), SGD(lr=0.1, batch_size=4, epochs=7)
    steps, epochs = (
        run(task, Plan(local=local, rounds=5, fleet=Fleet(work=RuanTraces(unit=unit)))) for unit in ("steps", "epochs")
    )
    assert (steps[0].model == epochs[0].model).all()
    assert all(np.array_equal(a.local_steps, b.local_steps) for a, b in zip(steps[1], epochs[1], strict=True))


def test_error_epochs_cannot_be_counted_where_steps_are_asked() -> None:
    plan = Plan(local=SGD(lr=0.1, steps=5), rounds=1, fleet=Fleet(work=RuanTraces(unit="epochs")))
    (said,) = [found.message for found in problems(plan)]
    assert said == (
        'RuanTraces on work: unit = "epochs" needs work asked in epochs; local.steps asks for steps. '
        'Set local.epochs instead, or fleet.work.unit = "steps".'
    )


def test_golden_fractions_by_hand() -> None:
    rule = Fraction(fraction=(0.0, 0.25, 0.5, 1.0))
    assert rule.done(np.array([10, 10, 5, 7]), np.arange(4), view_of(4)).tolist() == [0, 3, 3, 7]
    assert rule.done(np.array([10, 7]), np.array([2, 3]), view_of(4)).tolist() == [5, 7]


def test_property_a_spread_fraction_varies_evenly_within_its_bounds() -> None:
    done = np.stack(
        [Fraction(fraction=0.8, spread=0.4).done(np.full(50, 100), np.arange(50), view_of(50, r)) for r in range(40)]
    )
    assert (done.min(), done.max()) == (pytest.approx(40, abs=2), pytest.approx(100, abs=2))
    assert done.mean() == pytest.approx(70, abs=1.5)  # even on [0.4, 1]


def test_property_stragglers_stop_evenly_between_one_step_and_all_but_one() -> None:
    asked, ids = np.full(4000, 5), np.arange(4000)
    kept = Stragglers(prob=0.6).done(asked, ids, view_of(4000))
    counts = np.bincount(kept, minlength=6) / 4000
    assert counts[0] == 0
    assert np.allclose(counts[1:5], 0.15, atol=0.02)
    assert counts[5] == pytest.approx(0.4, abs=0.02)
    dropped = Stragglers(prob=0.6, stopped="drop").done(asked, ids, view_of(4000))
    assert np.array_equal(dropped, np.where(kept < 5, 0, 5))  # the same clients straggle
    assert (Stragglers(prob=1.0).done(np.ones(9, dtype=np.int64), np.arange(9), view_of(9)) == 1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RuanTraces(traces=0), r"traces in \[1, 8\]; got 0\. Change fleet\.work\.traces"),
        (lambda: RuanTraces(idle_prob=0.2), r"idle_prob in \[0, 0\.073\].*got 0\.2"),
        (lambda: Fraction(fraction=1.5), r"fraction in \[0, 1\]; got 1\.5"),
        (lambda: Fraction(spread=-0.1), r"spread in \[0, 1\]; got -0\.1"),
        (lambda: Stragglers(prob=1.5), r"prob in \[0, 1\]; got 1\.5\. Change fleet\.work\.prob"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_error_fractions_for_another_number_of_clients() -> None:
    (said,) = [found.message for found in Fraction(fraction=(0.1, 0.2)).population_problems(view_of(4).population)]
    assert said == ("Fraction needs one fraction, or one per client; got 2 for 4 clients. Change fleet.work.fraction.")
    with pytest.raises(ConfigError, match="got 2 for 6 clients"):
        run(blob_task(6), Plan(local=SGD(lr=0.1, steps=1), rounds=1, fleet=Fleet(work=Fraction(fraction=(0.1, 0.2)))))
