"""The clock: how long a round takes, what is done by the deadline, and who is late; and how fast devices are."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from tests.support.fleet_claims import view_of
from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.coordinator import Plan
from turnout.coordinator.records import NOBODY_EVER
from turnout.errors import ConfigError, DataError
from turnout.fleet import Bernoulli, Deadline, Fleet, Fraction, Lognormal, Phones, Recorded
from turnout.fleet.devices import amounts, normals, speeds
from turnout.local import SGD
from turnout.protocols import Timing


def timed(clock: Deadline, steps: ArrayLike, model_bytes: int = 100, clients: None = None) -> Timing:
    ids = np.arange(len(steps)) if clients is None else np.asarray(clients)  # type: ignore[arg-type]
    return clock.run(ids, np.asarray(steps, dtype=np.int64), model_bytes, view_of(10))


def test_golden_compute_and_transfers_add_up() -> None:
    clock = Deadline(seconds_per_step=(2.0, 1.0, 0.5, *[1.0] * 7), down_bandwidth=50.0, up_bandwidth=20.0)
    timing = timed(clock, [3, 4, 10])
    # transfers 100/50 + 100/20 = 7 s; compute 6, 4 and 5 s
    assert timing.round_seconds == pytest.approx(13.0)
    assert timing.done.tolist() == [3, 4, 10]
    assert not timing.late.any()


def test_golden_by_the_deadline_what_was_finished_is_handed_in_or_nothing() -> None:
    settings: dict[str, Any] = {
        "seconds_per_step": (2.0, 1.0, 9.0, *[1.0] * 7),
        "down_bandwidth": 50.0,
        "up_bandwidth": 20.0,
    }
    delivers = timed(Deadline(**settings, deadline_seconds=12.0), [3, 4, 10])
    assert delivers.done.tolist() == [2, 4, 0]  # five seconds for compute: 2 steps of 2 s, 4 of 1 s, none of 9 s
    assert delivers.late.tolist() == [False, False, True]
    assert delivers.round_seconds == 12.0  # one never came
    drops = timed(Deadline(**settings, deadline_seconds=12.0, incomplete="drop"), [3, 4, 10])
    assert drops.done.tolist() == [0, 4, 0]
    assert drops.late.tolist() == [True, False, True]


def test_golden_whoever_finishes_comes_before_one_that_is_cut_off_by_the_deadline() -> None:
    # client 0 would stop after 2 of 3 steps, at 8 s; client 1 finishes at 9 s; of two asked the first counts
    free: dict[str, Any] = {"down_bandwidth": math.inf, "up_bandwidth": math.inf, "deadline_seconds": 10.0}
    clock = Deadline(seconds_per_step=(4.0, 3.0, *[1.0] * 8), **free, over_selection=2.0)
    timing = timed(clock, [3, 3])
    assert timing.done.tolist() == [0, 3]
    assert timing.late.tolist() == [True, False]
    assert timing.round_seconds == 9.0
    # without over-selection both count, and the round lasts until what was cut off is there
    timing = timed(replace(clock, over_selection=1.0), [3, 3])
    assert timing.done.tolist() == [2, 3]
    assert timing.round_seconds == 10.0


def test_golden_a_step_that_ends_at_the_deadline_counts() -> None:
    clock = Deadline(seconds_per_step=0.1, down_bandwidth=math.inf, up_bandwidth=math.inf, deadline_seconds=0.3)
    timing = timed(clock, [3, 4])
    assert timing.done.tolist() == [3, 3]
    assert timing.round_seconds == pytest.approx(0.3)


def test_golden_of_those_asked_only_the_first_count() -> None:
    speeds = (5.0, 1.0, 3.0, 2.0, 4.0, *[1.0] * 5)
    clock = Deadline(seconds_per_step=speeds, down_bandwidth=math.inf, up_bandwidth=math.inf, over_selection=1.3)
    timing = timed(clock, [1, 1, 1, 1, 1])
    assert timing.done.tolist() == [0, 1, 1, 1, 1]  # ceil(5 / 1.3) = 4
    assert timing.late.tolist() == [True, False, False, False, False]
    assert timing.round_seconds == 4.0
    ten = timed(Deadline(over_selection=1.3), [1] * 10)
    assert int((ten.done > 0).sum()) == 8
    assert int((timed(Deadline(over_selection=1.25), [1] * 5).done > 0).sum()) == 4  # 5 / 1.25 is 4, not a little more


def test_golden_ties_go_to_the_lowest_client() -> None:
    timing = timed(Deadline(over_selection=2.0), [2, 2, 2, 2])
    assert timing.late.tolist() == [False, False, True, True]


def test_contract_a_round_never_takes_no_time() -> None:
    clock = Deadline(idle_seconds=45.0)
    assert timed(clock, []).round_seconds == 45.0  # nobody was asked
    assert timed(clock, [0, 0]).round_seconds == 45.0  # nobody will answer
    assert timed(Deadline(deadline_seconds=9.0), [0, 0]).round_seconds == 9.0
    assert timed(Deadline(deadline_seconds=9.0), []).round_seconds == 60.0
    assert timed(clock, [0, 5]).round_seconds < 45.0  # without a deadline the idle one is not waited for
    assert not timed(clock, [0, 5]).late.any()


@settings(max_examples=60)
@given(data=st.data(), deadline=st.none() | st.floats(0.5, 60), factor=st.floats(1, 3), drop=st.booleans())
def test_property_what_is_done_in_time_is_possible(
    data: st.DataObject, deadline: float | None, factor: float, drop: bool
) -> None:
    steps = np.array(data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=10)))
    clock = Deadline(
        seconds_per_step=Lognormal(median=1.0, sigma=1.0),
        down_bandwidth=Lognormal(median=100.0, sigma=1.0),
        deadline_seconds=deadline,
        over_selection=factor,
        incomplete="drop" if drop and deadline is not None else "deliver",
    )
    timing, view = timed(clock, steps), view_of(10)
    pace = clock.pace(np.arange(len(steps)), 100, view)
    counted = timing.done > 0
    assert (timing.done <= steps).all()
    assert (timing.done >= 0).all()
    assert timing.round_seconds > 0
    assert counted.sum() <= math.ceil(len(steps) / factor)
    assert (pace.duration(timing.done)[counted] <= timing.round_seconds + 1e-6).all()
    assert not (timing.late & counted).any()
    assert np.array_equal(timing.late | counted, steps > 0)
    if deadline is not None and len(steps):
        assert timing.round_seconds <= deadline + 1e-6
    if clock.incomplete == "drop":
        assert (timing.done[counted] == steps[counted]).all()


@settings(max_examples=30)
@given(steps=st.lists(st.integers(0, 20), min_size=1, max_size=10), round=st.integers(1, 9))
def test_identity_the_seconds_foretold_are_how_long_the_slowest_takes(steps: list[int], round: int) -> None:
    clock = Deadline(
        seconds_per_step=Lognormal(median=1.0, sigma=1.0),
        down_bandwidth=Lognormal(median=100.0, sigma=1.0),
        idle_seconds=7.0,
    )
    ids, work, view = np.arange(len(steps)), np.array(steps), view_of(10, round)
    foretold = clock.seconds(ids, work, 100, view)
    assert np.array_equal(foretold, clock.pace(ids, 100, view).duration(work))
    assert clock.run(ids, work, 100, view).round_seconds == (foretold[work > 0].max() if work.any() else 7.0)
    assert np.array_equal(clock.seconds(ids[:1], work[:1], 100, view), foretold[:1])  # whoever else is asked
    tight = replace(clock, deadline_seconds=0.1, over_selection=3.0)
    assert np.array_equal(tight.seconds(ids, work, 100, view), foretold)  # the deadline cuts the round, not the work


def test_identity_without_a_deadline_the_clock_only_tells_the_time() -> None:
    task, local = blob_task(6), SGD(lr=0.1, steps=3, batch_size=4)
    plain, _ = run(task, Plan(local=local, rounds=4))
    timed_run, records = run(task, Plan(local=local, rounds=4, fleet=Fleet(clock=Deadline())))
    assert (plain.model == timed_run.model).all()
    assert timed_run.world["seconds"] == pytest.approx(sum(record.costs.sim_seconds for record in records))
    assert timed_run.world["seconds"] > 0


def test_identity_a_deadline_is_the_fraction_it_leaves_time_for() -> None:
    task, local = blob_task(6), SGD(lr=0.1, steps=4, batch_size=4)
    free: dict[str, Any] = {"down_bandwidth": math.inf, "up_bandwidth": math.inf}
    clock = Deadline(seconds_per_step=1.0, **free, deadline_seconds=2.5)
    by_clock, _ = run(task, Plan(local=local, rounds=3, fleet=Fleet(clock=clock)))
    by_share, _ = run(task, Plan(local=local, rounds=3, fleet=Fleet(work=Fraction(fraction=0.5))))
    assert (by_clock.model == by_share.model).all()


def test_contract_the_late_are_recorded_and_leave_no_trace_in_the_model() -> None:
    task, local = blob_task(6), SGD(lr=0.1, steps=4, batch_size=4)
    slow = (1.0, 9.0, 1.0, 9.0, 1.0, 1.0)
    clock = Deadline(seconds_per_step=slow, deadline_seconds=6.0, incomplete="drop")
    final, records = run(task, Plan(local=local, rounds=1, fleet=Fleet(clock=clock)))
    assert records[-1].late.tolist() == [1, 3]
    assert records[-1].answered.tolist() == [0, 2, 4, 5]
    share = Fraction(fraction=(1.0, 0.0, 1.0, 0.0, 1.0, 1.0))
    without, _ = run(task, Plan(local=local, rounds=1, fleet=Fleet(work=share)))
    assert (final.model == without.model).all()


def test_contract_the_clock_moves_the_trace_on(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,start,end,state\n0,0,100,up\n1,100,200,up\n")
    clock = Deadline(seconds_per_step=20.0, down_bandwidth=math.inf, up_bandwidth=math.inf)
    fleet = Fleet(availability=Recorded(trace=path), clock=clock)
    _, records = run(blob_task(2), Plan(local=SGD(lr=0.1, steps=2, batch_size=2), rounds=6, fleet=fleet))
    assert [record.up.tolist() for record in records[1:]] == [[0], [0], [0], [1], [1], [0]]  # at 0, 40, …, 160, 200


def test_golden_the_spread_of_devices() -> None:
    assert normals(np.array([0.5, 0.975]))[1] == pytest.approx(1.959964, abs=1e-5)
    assert np.isfinite(normals(np.array([0.0]))).all()
    many = amounts(Lognormal(median=3.0, sigma=0.5), "x", np.arange(20_000), view_of(20_000))
    assert np.median(many) == pytest.approx(3.0, rel=0.02)
    assert np.log(many).std() == pytest.approx(0.5, rel=0.02)
    few = amounts(Lognormal(median=3.0, sigma=0.5), "x", np.array([5, 700]), view_of(20_000, 9))
    assert np.array_equal(few, many[[5, 700]])  # the same in every round, whoever else is asked for
    assert (amounts(Lognormal(median=3.0, sigma=0.0), "x", np.arange(9), view_of(9)) == 3.0).all()


def test_golden_speeds_are_normal_above_a_tenth_of_the_mean() -> None:
    draws = (np.arange(20_000) + 0.5) / 20_000
    tame = speeds(np.tile([100.0, 10.0], (20_000, 1)), draws)
    assert (tame.mean(), tame.std()) == (pytest.approx(100.0, rel=1e-3), pytest.approx(10.0, rel=1e-2))
    wild = speeds(np.tile([100.0, 100.0], (20_000, 1)), draws)
    assert wild.min() >= 10.0
    assert (np.diff(wild) >= 0).all()
    assert speeds(np.array([[100.0, 0.0]]), np.array([0.3]))[0] == pytest.approx(100.0)


@pytest.fixture
def recorded_phones(tmp_path: Path) -> Phones:
    scores = [{"CPU_F_AI_Score": score} for score in ("100", "200", "400")]
    users = {"u": {"down_u": 2.0, "down_sigma": 0.0, "up_u": 1.0, "up_sigma": 0.0}}
    (tmp_path / "flash_ai_benchmark_333_phones.json").write_text(json.dumps(scores))
    (tmp_path / "flash_network_speed_19_users.json").write_text(json.dumps(users))
    return Phones(folder=str(tmp_path))


def test_golden_phones_are_slow_by_their_score_and_send_at_recorded_speed(recorded_phones: Phones) -> None:
    clock = Deadline(seconds_per_step=1.0, phones=recorded_phones)
    pace = clock.pace(np.arange(10), 2048, view_of(10))
    assert set(pace.seconds_per_step.tolist()) == {2.0, 1.0, 0.5}  # median score 200
    assert np.allclose(pace.transfer_seconds, 1.0 + 2.0)  # 2 KiB at 2 and at 1 KiB a second
    again = clock.pace(np.array([7]), 2048, view_of(10, 5))
    assert again.seconds_per_step[0] == pace.seconds_per_step[7]


@pytest.mark.data
def test_contract_the_recorded_phones_of_flash(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_DATA", str(data_folder))
    view, ids = view_of(5000), np.arange(5000)
    slowness = Phones().slowness(ids, view)
    assert np.median(slowness) == pytest.approx(1.0, rel=0.1)
    assert slowness.max() == pytest.approx(1548 / 105, rel=0.02)
    down, up = Phones().bandwidths(ids, view)
    assert (down > 0).all()
    assert (up > 0).all()
    assert np.median(down) > np.median(up)
    assert not np.array_equal(Phones().bandwidths(ids, view_of(5000, 2))[0], down)  # another round, another speed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Deadline(seconds_per_step=0.0), r"seconds_per_step > 0; got 0\.0\. Change fleet\.clock\.seconds"),
        (lambda: Deadline(seconds_per_step=math.inf), r"seconds_per_step <= 1,000,000,000,000; got inf"),
        (lambda: Deadline(up_bandwidth=(1.0, -2.0)), r"up_bandwidth > 0; got -2\.0"),
        (lambda: Deadline(deadline_seconds=0.0), r"deadline_seconds > 0; got 0\.0"),
        (lambda: Deadline(idle_seconds=0.0), r"idle_seconds > 0; got 0\.0\. Change fleet\.clock\.idle_seconds"),
        (lambda: Deadline(over_selection=0.9), r"over_selection >= 1; got 0\.9"),
        (lambda: Lognormal(median=0.0), r"median > 0; got 0\.0"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_error_speeds_for_another_number_of_clients() -> None:
    (said,) = [
        found.message for found in Deadline(down_bandwidth=(1.0, 2.0)).population_problems(view_of(10).population)
    ]
    assert said == (
        "Deadline needs one down_bandwidth, or one per client; got 2 for 10 clients. Change fleet.clock.down_bandwidth."
    )
    with pytest.raises(ConfigError, match="got 2 for 3 clients"):
        run(blob_task(3), Plan(local=SGD(lr=0.1, steps=1), rounds=1, fleet=Fleet(clock=Deadline(up_bandwidth=(1, 2)))))


def test_error_phones_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"Phones needs flash_ai_benchmark.*Set fleet\.clock\.phones\.folder"):
        timed(Deadline(phones=Phones(folder=str(tmp_path))), [1])
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"TURNOUT_DATA is not set"):
        timed(Deadline(phones=Phones()), [1])
    (said,) = [found.message for found in Deadline(phones=Phones()).population_problems(view_of(10).population)]
    assert said.startswith(
        "Phones needs the folder of the recorded devices; TURNOUT_DATA is not set. Set fleet.clock.phones.folder"
    )


def test_contract_a_fleet_where_nobody_ever_comes_ends_normally_and_says_so() -> None:
    fleet = Fleet(availability=Bernoulli(prob=0.0), clock=Deadline(idle_seconds=30.0))
    final, records = run(blob_task(3), Plan(local=SGD(lr=0.1, steps=1, batch_size=2), rounds=5, fleet=fleet))
    assert final.world["seconds"] == 150.0
    assert records[-1].finished
    assert all(record.events == ("nobody was up",) for record in records[1:-1])
    assert records[-1].events == ("nobody was up", NOBODY_EVER)
