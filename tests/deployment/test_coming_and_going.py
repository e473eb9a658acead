"""Devices that are late, join, leave, say goodbye or are silent, in this process: parcels pass through bytes."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.deployment.devices import QUICK, deploy, device_of, devices_of
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg
from turnout.asynchrony import FedBuff
from turnout.coordinator import Plan, Turnover
from turnout.local import SGD
from turnout.requests import Outcome
from turnout.world.deployment import Device, InProcess, Limits
from turnout.world.deployment.parcel import Parcel

SOLVER = SGD(lr=0.1, batch_size=4, steps=5)
PLAN = Plan(local=SOLVER, rounds=3, aggregation=FedAvg(weighting="mean"))
SHORT = Limits(deadline_seconds=0.3, grace_seconds=0.5, late_seconds=5, wait_seconds=10)


class Stuck(Device):
    """A device that takes real time over its first order."""

    free: threading.Event

    def answer(self, parcel: Parcel) -> Parcel:
        if parcel.kind == "train" and parcel.values["round"] == 1:
            self.free.wait(20)
        return super().answer(parcel)


def test_contract_a_late_device_is_not_waited_for_nor_asked_again_until_it_answers(tmp_path: Any) -> None:
    task = blob_task(3)
    devices = devices_of(task, SOLVER, tmp_path)
    stuck = Stuck(devices[2].task, SOLVER, devices[2].folder)
    stuck.free = threading.Event()

    def watch(record: Any) -> None:
        if record.round == 2:
            stuck.free.set()
            time.sleep(0.5)

    with InProcess({**devices, 2: stuck}, workers=3) as transport:
        _, records = deploy(task, replace(PLAN, rounds=4), transport, limits=SHORT, on_record=watch)
    assert records[1].outcomes.tolist() == [Outcome.COMPLETE, Outcome.COMPLETE, Outcome.LATE]
    assert records[2].up.tolist() == [0, 1]
    assert records[4].answered.tolist() == [0, 1, 2]
    events = [event for record in records for event in record.events]
    assert "client 2 answered round 1 after it was closed" in events


def test_golden_work_that_a_deadline_cut_off_is_on_record_in_whichever_round_it_comes_back(tmp_path: Any) -> None:
    """Device 1 works on the order of round 1 while the others fill buffers, and is not asked again before."""
    task, plan = blob_task(3), replace(PLAN, rounds=4, asynchrony=FedBuff(buffer_size=2, concurrency=3))
    ticks = iter(range(10**9))
    stuck = Stuck(device_of(task, 1, SOLVER, tmp_path).task, SOLVER, tmp_path, clock=lambda: next(ticks) * 10.0)
    stuck.free = threading.Event()
    devices = {**devices_of(task, SOLVER, tmp_path), 1: stuck}
    limits = replace(QUICK, deadline_seconds=25)

    def watch(record: Any) -> None:
        if record.round == 1:
            stuck.free.set()

    with InProcess(devices, workers=3) as transport:
        _, records = deploy(task, plan, transport, limits=limits, on_record=watch)
    of_stuck = [record.progress.of(np.array([1])) for record in records if record.progress is not None]
    late = next(progress for progress in of_stuck if progress.steps[0] > 0)
    assert (late.steps.tolist(), late.seconds.tolist(), late.cut_off.tolist()) == ([3], [25.0], [True])


def test_contract_a_device_that_joins_late_is_an_arrival_and_its_samples_count(tmp_path: Any) -> None:
    task, plan = blob_task(3), replace(PLAN, aggregation=FedAvg(), turnover=Turnover(reboot="vanilla"))
    devices = devices_of(task, SOLVER, tmp_path)
    with InProcess({0: devices[0], 1: devices[1]}) as transport:

        def join(record: Any) -> None:
            if record.round == 1:
                transport.connect(2, devices[2])
                time.sleep(0.2)

        _, records = deploy(task, plan, transport, limits=replace(QUICK, start_with=2), on_record=join, unknown=[2])
    assert records[1].asked.tolist() == [0, 1]
    arrived = next(record for record in records if "client 2 arrived" in record.events)
    assert records[-1].answered.tolist() == [0, 1, 2]
    assert arrived.round <= 3
    np.testing.assert_allclose(records[-1].coefficients, task.federation.weights)


def test_contract_a_device_that_was_away_for_long_has_left(tmp_path: Any) -> None:
    task, turnover = blob_task(3), Turnover(on_departure="exclude", reboot="vanilla")
    plan = replace(PLAN, aggregation=FedAvg(), turnover=turnover)
    with InProcess(devices_of(task, SOLVER, tmp_path)) as transport:

        def leave(record: Any) -> None:
            if record.round == 1:
                transport.disconnect(2)
                time.sleep(0.6)

        _, records = deploy(task, plan, transport, limits=replace(QUICK, gone_after_seconds=0.5), on_record=leave)
    assert "client 2 left and is excluded" in records[2].events
    weights = task.federation.sizes[:2] / task.federation.sizes[:2].sum()
    np.testing.assert_allclose(records[3].coefficients, weights)


@pytest.mark.parametrize("says_goodbye", [False, True])
def test_contract_a_device_that_says_goodbye_has_left_and_one_that_is_silent_has_not(
    says_goodbye: bool, tmp_path: Any
) -> None:
    task, turnover = blob_task(3), Turnover(on_departure="exclude", reboot="vanilla")
    plan = replace(PLAN, aggregation=FedAvg(), turnover=turnover, rounds=4)
    devices = devices_of(task, SOLVER, tmp_path)
    saved: dict[int, Any] = {}
    with InProcess(devices) as transport:

        def watch(record: Any) -> None:
            saved[record.round] = record.state
            if record.round == 1:
                transport.disconnect(2, says_goodbye=says_goodbye)
            if record.round == 3:
                transport.connect(2, devices[2])
                time.sleep(0.3)  # its hello is answered before the next census

        _, records = deploy(task, plan, transport, on_record=watch)
    told = [event for record in records for event in record.events if "left" in event or "arrived" in event]
    assert told == (["client 2 left and is excluded", "client 2 arrived"] if says_goodbye else [])
    assert [record.up.tolist() for record in records[1:]] == [[0, 1, 2], [0, 1], [0, 1], [0, 1, 2]]
    assert saved[2].world["departed"].tolist() == ([2] if says_goodbye else [])
    with InProcess({0: devices[0], 1: devices[1]}) as transport:  # the server was killed, and nobody came back
        _, again = deploy(task, plan, transport, state=saved[2], limits=replace(QUICK, grace_seconds=0.3))
    assert [event for record in again for event in record.events if "arrived" in event] == []


class Leaving(Device):
    """A device that says goodbye while it is at work."""

    leave: Callable[[], None]

    def answer(self, parcel: Parcel) -> Parcel:
        if parcel.kind == "train":
            self.leave()
        return super().answer(parcel)


def test_contract_a_device_that_says_goodbye_within_a_round_is_lost_at_once(tmp_path: Any) -> None:
    task = blob_task(3)
    devices = devices_of(task, SOLVER, tmp_path)
    leaving = Leaving(devices[1].task, SOLVER, devices[1].folder)

    class Deaf(InProcess):
        """A network that delivers nothing of device 1's work."""

        def pull(self, tickets: Any) -> Any:
            return [reply for reply in super().pull(tickets) if reply.parcel and reply.parcel.values.get("client") != 1]

    with Deaf({**devices, 1: leaving}) as transport:
        leaving.leave = lambda: transport.disconnect(1, says_goodbye=True)
        _, records = deploy(task, replace(PLAN, rounds=1), transport)
    assert records[1].outcomes.tolist() == [Outcome.COMPLETE, Outcome.LOST, Outcome.COMPLETE]
    assert "client 1: the device said goodbye" in records[1].events
    assert records[1].costs.sim_seconds < QUICK.round_seconds / 2  # nobody waited for it


def test_contract_work_under_way_when_the_server_stopped_is_lost_and_the_run_goes_on(tmp_path: Any) -> None:
    plan = replace(PLAN, rounds=5, asynchrony=FedBuff(buffer_size=2, concurrency=3))
    task, saved = blob_task(5), {}
    with InProcess(devices_of(task, SOLVER, tmp_path)) as transport:
        deploy(task, plan, transport, on_record=lambda record: saved.update({record.round: record.state}))
        at_work = saved[2].world["at_work"].tolist()
        final, records = deploy(task, plan, transport, state=saved[2])
    assert at_work
    assert [record.round for record in records] == [3, 4, 5]
    assert set(final.jobs["clients"].tolist()) == set(final.world["at_work"].tolist())
