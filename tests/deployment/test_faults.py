"""Devices that are late, slow, gone, new, forgetful or hostile, in this process: parcels pass through bytes."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.deployment.devices import QUICK, at_server, deploy, device_of, devices_of, distance, in_process
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg, FedNova, SchemeC
from turnout.coordinator import Plan, State
from turnout.errors import ConfigError, DataError, UpdateError
from turnout.local import SGD
from turnout.protocols import Population
from turnout.requests import Outcome
from turnout.selection import PowerOfChoice, Uniform
from turnout.world.deployment import Device, InProcess, Limits, Mailbox
from turnout.world.deployment.parcel import BadParcelError, Parcel, Wire

SOLVER = SGD(lr=0.1, batch_size=4, steps=5)
PLAN = Plan(local=SOLVER, rounds=3, aggregation=FedAvg(weighting="mean"))
SHORT = Limits(deadline_seconds=0.3, grace_seconds=0.5, late_seconds=5, wait_seconds=10)


class Hostile(Device):
    """A device that changes what it sends."""

    spoil: Callable[[Parcel], Parcel]

    def answer(self, parcel: Parcel) -> Parcel:
        answer = super().answer(parcel)
        return self.spoil(answer) if parcel.kind == "train" else answer


def changed(parcel: Parcel, arrays: dict[str, Any] | None = None, **values: Any) -> Parcel:
    return Parcel(parcel.kind, {**parcel.values, **values}, {**parcel.arrays, **(arrays or {})})


def with_hostile(task: Any, local: Any, folder: Path, spoil: Callable[[Parcel], Parcel]) -> dict[int, Device]:
    devices = devices_of(task, local, folder)
    honest = devices[1]
    hostile = Hostile(honest.task, local, honest.folder, honest.allows)
    hostile.spoil = spoil
    return {**devices, 1: hostile}


EXPECTED = "expected delta of shape [43] and type float64"
LIES = {
    "NaN": (lambda p: changed(p, {"delta": p.arrays["delta"] * np.nan}), "the update is not finite"),
    "too long": (
        lambda p: changed(p, {"delta": np.zeros(99)}),
        "expected delta of shape [43] and type float64, got [99]",
    ),
    "broadcastable": (lambda p: changed(p, {"delta": np.zeros(1)}), "expected delta of shape [43]"),
    "broadcastable, two": (lambda p: changed(p, {"delta": np.zeros((1, 43))}), "expected delta of shape [43]"),
    "another type": (
        lambda p: changed(p, {"delta": p.arrays["delta"].astype(np.float32)}),
        "expected delta of shape [43]",
    ),
    "no update": (lambda p: Parcel(p.kind, p.values), "the answer has no delta"),
    "absurd steps": (lambda p: changed(p, steps=10**15), "expected 1 to 5 local steps, got 1000000000000000"),
    "negative steps": (lambda p: changed(p, steps=-3), "expected 1 to 5 local steps, got -3"),
    "no steps": (lambda p: changed(p, steps="many"), "steps is no whole number"),
    "huge steps": (lambda p: changed(p, steps=10**40), "steps is no whole number"),
    "NaN loss": (lambda p: changed(p, loss=float("nan")), "the loss is not a number"),
    "another round": (lambda p: changed(p, round=7), "the answer is for round 7"),
    "another client": (lambda p: changed(p, client=0), "the answer is for client 0"),
    "absurd samples": (lambda p: changed(p, num_examples=-1), "reports -1 samples"),
    "another kind": (lambda p: Parcel("hello", p.values, p.arrays), "answered with 'hello'"),
    "terminal codes": (lambda p: Parcel("refused", {"reason": "\x1b[2J no"}), " [2J no"),
}


@pytest.mark.parametrize("name", LIES)
def test_contract_a_lie_is_rejected_with_its_reason_and_the_others_count(name: Any, tmp_path: Any) -> None:
    task, (spoil, reason) = blob_task(3), LIES[name]
    with InProcess(with_hostile(task, SOLVER, tmp_path, spoil)) as transport:
        final, records = deploy(task, PLAN, transport)
    for record in records[1:]:
        assert record.rejected[1].startswith(reason)
        assert record.answered.tolist() == [0, 2]
        assert record.outcomes.tolist() == [Outcome.COMPLETE, Outcome.REJECTED, Outcome.COMPLETE]
    assert bool(torch.isfinite(final.model).all())


class Limited(InProcess):
    """A network that takes no message of more than a few bytes to device 1."""

    def push(self, parcels: Any, seconds: float) -> Any:
        fits = {n: p for n, p in parcels.items() if n != 1 or sum(map(len, (w.data for w in p.wires().values()))) < 100}
        return super().push(fits, seconds)


def test_contract_a_message_that_is_not_taken_is_lost_at_once_and_on_record(tmp_path: Any) -> None:
    task = blob_task(3)
    with Limited(devices_of(task, SOLVER, tmp_path)) as transport:
        _, records = deploy(task, PLAN, transport)
    for record in records[1:]:
        assert record.outcomes.tolist() == [Outcome.COMPLETE, Outcome.LOST, Outcome.COMPLETE]
        assert record.events[0] == "client 1: the message to it was not taken; it may be too large"
        assert record.costs.sim_seconds < QUICK.round_seconds / 2  # nobody waited for it


class Replaying(InProcess):
    """A network that delivers every answer again, to the next question."""

    last: dict[str, Any]

    def pull(self, tickets: Any) -> Any:
        fresh = super().pull(tickets)
        again = list(self.last.values())
        self.last = {reply.ticket: reply for reply in fresh}
        return [*fresh, *again]


def test_contract_a_replayed_answer_is_not_used_and_is_on_record(tmp_path: Any) -> None:
    task = blob_task(3)
    expected, _ = in_process(task, PLAN, tmp_path / "honest")
    with Replaying(devices_of(task, SOLVER, tmp_path / "replayed")) as transport:
        transport.last = {}
        final, records = deploy(task, PLAN, transport)
    assert torch.equal(final.model, expected.model)
    assert any("a message that is closed was not used" in event for record in records for event in record.events)


def slow(task: Any, client: int, local: Any, folder: Path, seconds: float) -> Device:
    """Return a device whose clock runs as if every look at it took so long: work takes time, the test does not."""
    ticks = iter(range(10**9))
    return device_of(task, client, local, folder, clock=lambda: next(ticks) * seconds)


def test_golden_a_device_stops_at_the_deadline_and_scheme_c_weighs_what_it_did(tmp_path: Any) -> None:
    task, plan = blob_task(3), replace(PLAN, aggregation=SchemeC(), rounds=1)
    devices = {**devices_of(task, SOLVER, tmp_path), 1: slow(task, 1, SOLVER, tmp_path, seconds=10.0)}
    with InProcess(devices) as transport:
        _, records = deploy(task, plan, transport, limits=replace(QUICK, deadline_seconds=25))
    record, sizes = records[1], task.federation.sizes
    assert record.local_steps.tolist() == [5, 3, 5]  # looks at 10 and 20 s go on, the one at 30 s ends it
    assert record.outcomes.tolist() == [Outcome.COMPLETE, Outcome.PARTIAL, Outcome.COMPLETE]
    expected = sizes / sizes.sum() * np.array([1, 5 / 3, 1])
    np.testing.assert_allclose(record.coefficients, expected)
    progress = present(record.progress)
    assert progress.steps.tolist() == [5, 3, 5]
    assert progress.cut_off.tolist() == [False, True, False]
    assert progress.seconds[1] == 25  # three steps by the deadline, whatever the last look at the clock said
    assert (progress.seconds[[0, 2]] < 20).all()


def test_identity_partial_work_is_the_simulation_of_as_many_steps(tmp_path: Any) -> None:
    """Whatever cut the work short, three steps of a solver with momentum are three steps."""
    local = replace(SOLVER, momentum=0.9)
    task, plan = blob_task(1), Plan(local=local, rounds=2, aggregation=FedNova())
    simulated, _ = run(task, replace(plan, local=replace(local, steps=3)))
    with InProcess({0: slow(task, 0, local, tmp_path, seconds=10.0)}) as transport:
        final, records = deploy(task, plan, transport, limits=replace(QUICK, deadline_seconds=25))
    assert [record.local_steps.tolist() for record in records[1:]] == [[3], [3]]
    assert distance(final.model, simulated.model) < 1e-12


def test_error_too_few_devices_before_the_first_round(tmp_path: Any) -> None:
    task = blob_task(3)
    devices = devices_of(task, SOLVER, tmp_path)
    with InProcess({0: devices[0]}) as transport, pytest.raises(UpdateError, match="needs 3 devices; 1 were connected"):
        deploy(task, PLAN, transport, limits=replace(QUICK, wait_seconds=0.3))


CONTROLS = Plan(local=replace(SOLVER, control="average"), rounds=4, selection=Uniform(cohort_size=2))


def test_identity_controls_survive_the_restart_of_every_device_in_every_round(tmp_path: Any) -> None:
    task = blob_task(4)
    simulated, _ = run(task, CONTROLS)
    with InProcess(devices_of(task, CONTROLS.local, tmp_path)) as transport:

        def restart(record: Any) -> None:
            for number, device in devices_of(task, CONTROLS.local, tmp_path).items():
                transport.connect(number, device)
            time.sleep(0.3)  # hellos are answered before the next census

        final, records = deploy(task, CONTROLS, transport, on_record=restart)
    assert all(len(record.up) == 4 for record in records[1:])
    assert distance(final.model, simulated.model) < 1e-12


def test_identity_a_server_killed_in_a_round_goes_on_as_if_it_had_not_been(tmp_path: Any) -> None:
    """Devices trained for the round that was lost, and wait with a row that is never to be kept."""
    task = blob_task(4)
    whole, _ = in_process(task, CONTROLS, tmp_path / "whole")

    class KilledError(Exception):
        pass

    saved = {}

    def kill(record: Any) -> None:
        saved[record.round] = record.state
        if record.round == 3:  # the journal did not get it
            raise KilledError

    with InProcess(devices_of(task, CONTROLS.local, tmp_path / "killed")) as transport:
        with pytest.raises(KilledError):
            deploy(task, CONTROLS, transport, on_record=kill)
        final, records = deploy(task, CONTROLS, transport, state=saved[2])
    assert [record.round for record in records] == [3, 4]
    assert torch.equal(final.model, whole.model)


def test_contract_a_device_that_lost_its_state_is_rejected_with_what_to_do(tmp_path: Any) -> None:
    task, plan = blob_task(2), replace(CONTROLS, selection=Uniform(), rounds=2)
    with InProcess(devices_of(task, plan.local, tmp_path)) as transport:

        def lose(record: Any) -> None:
            if record.round == 1:
                (tmp_path / "device-1" / "testrun-control.safetensors").unlink()

        _, records = deploy(task, plan, transport, on_record=lose)
    assert "needs the client state 'control' of round 1" in records[2].rejected[1]
    assert "start a new run" in records[2].rejected[1]


def test_contract_clients_forget_what_a_dropped_step_taught_them(tmp_path: Any) -> None:
    """A device that sends an update of 1e200 makes the server drop its step; controls stay as they were."""
    task, plan = blob_task(3), replace(CONTROLS, selection=Uniform(), rounds=2, aggregation=FedAvg(weighting="mean"))

    def spoil(parcel: Parcel) -> Parcel:
        return changed(parcel, {"delta": np.full(43, 1e200)}) if parcel.values["round"] == 1 else parcel

    with InProcess(with_hostile(task, plan.local, tmp_path, spoil)) as transport:
        final, records = deploy(task, plan, transport)
    assert not records[1].step_kept
    assert records[1].state.world["kept_round"].tolist() == [0, 0, 0]
    assert final.world["kept_round"].tolist() == [2, 2, 2]
    begin = State.start(task.layout.flatten(task.module), Population.of(task.federation.sizes))
    begin.round, begin.members = 1, records[1].state.members
    second, _ = in_process(task, plan, tmp_path / "honest", state=begin)
    assert torch.equal(final.model, second.model)


def test_contract_what_a_device_does_not_allow_it_does_not_send(tmp_path: Any) -> None:
    task, plan = blob_task(3), replace(PLAN, selection=PowerOfChoice(cohort_size=1, pool_size=3))
    devices = devices_of(task, SOLVER, tmp_path)
    closed = device_of(task, 2, SOLVER, tmp_path / "closed", allows=())
    with InProcess({**devices, 2: closed}) as transport:
        _, records = deploy(task, plan, transport)
    reason = "client 2: this device does not send its losses; its own configuration must allow losses"
    assert reason in records[1].events
    assert all(2 not in record.asked for record in records)
    for kind in ("probe", "score", "evaluate"):
        assert closed.answer(Parcel(kind, {"what": "loss"})).kind == "refused"


def test_error_a_device_may_allow_only_what_there_is(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="may allow losses, gradients, labels; got everything"):
        device_of(blob_task(2), 0, SOLVER, tmp_path, allows=["everything"])


def test_contract_without_a_test_set_the_hold_outs_are_measured(tmp_path: Any) -> None:
    task = blob_task(3)
    blind = replace(task, federation=replace(task.federation, test=None))
    final, records = in_process(blind, replace(PLAN, rounds=1), tmp_path)
    losses = []
    for client in range(3):
        held = cast(Any, task.federation.train).of(client)
        out = torch.func.functional_call(task.module, task.layout.views(final.model), (held.x,))
        losses.append(float(task.loss(out, held.y).mean()))
    sizes = task.federation.sizes
    assert records[1].metrics["loss"] == pytest.approx(float((sizes * losses).sum() / sizes.sum()), rel=1e-9)
    assert np.isfinite(present(records[1].client_accuracy)).all()


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (Wire("float32", (10**12,), b"1234"), "has 4 bytes, and its shape needs 4000000000000"),
        (Wire("object", (1,), b"12345678"), "has type 'object'"),
        (Wire("float32", (1, 1, 1), b"1234"), "3 dimensions"),
        (Wire("float32", (-1,), b""), "dimensions"),
    ],
)
def test_error_an_array_that_is_not_what_it_says(wire: Any, reason: Any) -> None:
    with pytest.raises(BadParcelError, match=reason):
        Parcel.received("train", "{}", {"delta": wire})


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, "x" * (1 << 21)])
def test_error_values_that_are_no_table(text: Any) -> None:
    with pytest.raises(BadParcelError):
        Parcel.received("train", text, {})


def test_contract_a_device_with_samples_of_another_form_cannot_take_part(tmp_path: Any) -> None:
    task, other = blob_task(2), blob_task(2)
    wide = replace(other.federation, num_classes=7)
    odd = device_of(replace(other, federation=wide), 1, SOLVER, tmp_path / "odd")
    with InProcess({0: device_of(task, 0, SOLVER, tmp_path / "own"), 1: odd}) as transport:
        mailbox = Mailbox(transport, poll_seconds=0.01)
        assert mailbox.wait_for(2, 2) == [0]
    assert "its samples have form" in mailbox.refused[1]


def test_error_the_server_has_no_samples_of_devices() -> None:
    with pytest.raises(DataError, match="lie on their devices"):
        at_server(blob_task(3).federation).train.fetch(np.array([1]))
