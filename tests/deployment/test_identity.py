"""With devices that answer fully, a deployment is the simulation, up to the rounding of sums."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.deployment.devices import deploy, devices_of, distance, in_process
from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg, FedNova, FedVARP, Median, SchemeC
from turnout.asynchrony import FedBuff
from turnout.coordinator import Plan, Turnover
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD, Adam
from turnout.requests import Outcome
from turnout.selection import PowerOfChoice, Uniform
from turnout.server import FedAdam
from turnout.world.deployment import InProcess

SOLVER = SGD(lr=0.1, batch_size=4, steps=5)
PLANS = {
    "FedAvg": Plan(local=SOLVER, rounds=4, selection=Uniform(cohort_size=3), aggregation=FedAvg(weighting="mean")),
    "FedProx, momentum": Plan(local=replace(SOLVER, momentum=0.9, prox_strength=0.1, clip_norm=1.0), rounds=4),
    "SCAFFOLD": Plan(local=replace(SOLVER, control="average"), rounds=5, selection=Uniform(cohort_size=3)),
    "SCAFFOLD, option I": Plan(local=replace(SOLVER, control="gradient"), rounds=4, selection=Uniform(cohort_size=3)),
    "kept momentum": Plan(
        local=replace(SOLVER, momentum=0.5, momentum_reset="never"), rounds=5, selection=Uniform(cohort_size=3)
    ),
    "FedNova": Plan(local=replace(SOLVER, steps=(2, 9)), rounds=4, aggregation=FedNova()),
    "scheme C": Plan(local=SOLVER, rounds=3, aggregation=SchemeC()),
    "median, FedAdam": Plan(
        local=SOLVER, rounds=3, aggregation=Median(), server=FedAdam(lr=0.01), turnover=Turnover(reboot="vanilla")
    ),
    "FedVARP": Plan(
        local=SOLVER,
        rounds=4,
        selection=Uniform(cohort_size=3),
        aggregation=FedVARP(),
        turnover=Turnover(reboot="vanilla"),
    ),
    "local Adam": Plan(local=Adam(lr=0.01, steps=4, batch_size=4, correction="local"), rounds=3),
    "power of choice": Plan(local=SOLVER, rounds=3, selection=PowerOfChoice(cohort_size=2, pool_size=4)),
}


@pytest.mark.parametrize("name", PLANS)
def test_identity_a_deployment_is_the_simulation(name: Any, tmp_path: Any) -> None:
    plan, task = PLANS[name], blob_task(5)
    simulated, expected = run(task, plan)
    final, records = in_process(task, plan, tmp_path)
    assert distance(final.model, simulated.model) < 1e-12
    for ours, theirs in zip(records, expected, strict=True):
        np.testing.assert_array_equal(ours.asked, theirs.asked)
        np.testing.assert_array_equal(ours.local_steps, theirs.local_steps)
        np.testing.assert_allclose(ours.coefficients, theirs.coefficients, rtol=1e-12)
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-9)
        assert ours.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=1e-9)
        assert (ours.outcomes == Outcome.COMPLETE).all()
        assert ours.events == theirs.events


def test_identity_fedbuff_on_devices_is_the_simulation(tmp_path: Any) -> None:
    """With as many at work as fill a buffer, who is in a buffer does not depend on who is faster."""
    plan = Plan(local=SOLVER, rounds=6, asynchrony=FedBuff(buffer_size=2, concurrency=2),
                aggregation=FedAvg(weighting="mean"))  # fmt: skip
    task = blob_task(5)
    simulated, expected = run(task, replace(plan, fleet=Fleet(clock=Deadline())))
    final, records = in_process(task, plan, tmp_path)
    assert [record.answered.tolist() for record in records] == [record.answered.tolist() for record in expected]
    assert [r.metrics.get("staleness") for r in records] == [r.metrics.get("staleness") for r in expected]
    assert any(record.metrics.get("staleness", 0) > 0 for record in records)
    assert distance(final.model, simulated.model) < 1e-12


def test_identity_devices_side_by_side_give_the_same_model(tmp_path: Any) -> None:
    plan, task = PLANS["SCAFFOLD"], blob_task(5)
    alone, _ = in_process(task, plan, tmp_path / "alone")
    with InProcess(devices_of(task, plan.local, tmp_path / "together"), workers=3) as transport:
        together, _ = deploy(task, plan, transport)
    assert distance(together.model, alone.model) == 0
