"""COMET with a family of models: clients of different architectures that exchange predictions."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.distillation_checks import (
    LISTED,
    NUMBERS,
    check_one_cluster_follows_the_mean_of_all_architectures,
)
from tests.support.families import LOCAL, family_run, family_task, members_of
from tests.support.personal_runs import kept, personal_run
from turnout.aggregation import EnsembleTransfer
from turnout.coordinator import State
from turnout.engine import Sequential, Task, Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD
from turnout.local.batches import samples_used
from turnout.models.layout import Layout
from turnout.personal import Codistil, Ditto
from turnout.requests import Record
from turnout.selection import Uniform
from turnout.width import Architectures, Nested


def comet(rule: Any, task: Task | None = None, **more: Any) -> tuple[State, list[Record]]:
    return family_run(family_task() if task is None else task, personal=rule, **({"width": LISTED} | more))


def alone(task: Task, number: int) -> Task:
    """Return the task of one architecture by itself, from the same start."""
    members = members_of(task)
    start = task.layout.flatten(task.module)[members.parts.members[number].columns]
    module = members.cut((number,))
    return Task(federation=task.federation, module=Layout.of(module).load(module, start), loss=task.loss)


@pytest.mark.parametrize("solver", [LOCAL, SGD(lr=0.1, steps=3, batch_size=4, prox_strength=0.5, momentum=0.9)])
def test_identity_without_strength_every_client_is_alone_with_its_architecture(solver: SGD) -> None:
    task = family_task()
    state, records = comet(Codistil(strength=0.0), task, local=solver)
    start = task.layout.flatten(task.module)
    assert torch.equal(state.model, start)
    for number, member in enumerate(members_of(task).parts.members):
        own = np.flatnonzero(np.array(NUMBERS) == number)
        single, measured = personal_run(alone(task, number), Codistil(strength=0.0), local=solver, rounds=3)
        assert torch.equal(kept(state)[own][:, member.columns], kept(single)[own])
        for metric in ("personal loss", "personal accuracy"):
            assert np.array_equal(records[-1].personal[metric][own], measured[-1].personal[metric][own])
        others = np.setdiff1d(np.arange(start.numel()), member.columns.numpy())
        assert torch.equal(kept(state)[own][:, others], start[others].expand(len(own), -1))
    assert records[-1].metrics["loss"] == pytest.approx(np.mean(records[-1].personal["personal loss"]))


def test_identity_one_architecture_is_comet_on_its_model() -> None:
    task, rule = family_task(), Codistil(samples=7, batch_size=3)
    first = Architectures(assign="listed", numbers=(1,) * 6)
    state, records = comet(rule, task, width=first, selection=Uniform(cohort_size=4))
    single, plain = personal_run(alone(task, 1), rule, local=LOCAL, rounds=3, selection=Uniform(cohort_size=4))
    assert torch.equal(kept(state)[:, members_of(task).parts.members[1].columns], kept(single))
    assert [(r.costs.bytes_up, r.costs.bytes_down) for r in records] == [
        (r.costs.bytes_up, r.costs.bytes_down) for r in plain
    ]


def test_golden_one_cluster_pulls_all_architectures_towards_one_mean() -> None:
    check_one_cluster_follows_the_mean_of_all_architectures()


def test_golden_costs_are_predictions_both_ways_and_work_by_architecture() -> None:
    task = family_task()
    _, records = comet(Codistil(samples=5, distil_steps=2, batch_size=5), task, rounds=1)
    costs = records[1].costs
    assert (costs.bytes_up, costs.bytes_down) == (6 * 5 * 3 * 8, 6 * 5 * 3 * 8)  # clients, inputs, classes, float64
    assert costs.probe_evaluations == 6 * 5
    members = members_of(task).parts.members
    shares = np.array([members[number].step_cost for number in NUMBERS])
    taught = sum(round(3 * 2 * 5 * member.step_cost) for member in members)
    used = samples_used(task.federation.sizes, np.full(6, 3), 4, LOCAL.batches, LOCAL.cycle)
    assert costs.gradient_evaluations == round(used @ shares) + taught
    _, silent = comet(Codistil(strength=0.0), task, rounds=1)
    assert (silent[1].costs.bytes_up, silent[1].costs.bytes_down) == (0, 0)


def test_engine_engines_agree_and_a_run_goes_on_from_its_state() -> None:
    rule = Codistil(samples=7, batch_size=3)
    how: dict[str, Any] = {"selection": Uniform(cohort_size=4)}
    one, records = comet(rule, engine=Sequential(), **how)
    other, _ = comet(rule, engine=Vectorised("cpu"), **how)
    assert torch.allclose(kept(one), kept(other), rtol=0, atol=1e-12)
    half, _ = comet(rule, rounds=2, **how)
    again, resumed = comet(rule, rounds=3, state=half, **how)
    assert torch.equal(kept(again), kept(one))
    assert resumed[-1].metrics == records[-1].metrics


def test_golden_clients_keep_the_architecture_of_their_speed() -> None:
    rule, fleet = (
        Architectures(assign="by-speed"),
        Fleet(clock=Deadline(seconds_per_step=(3.0, 1.0, 2.0, 6.0, 5.0, 4.0))),
    )
    _, records = comet(Codistil(strength=0.0), rounds=2, width=rule, fleet=fleet)
    _, known = comet(Codistil(strength=0.0), rounds=2, width=rule, fleet=fleet, selection=Uniform(cohort_size=2))
    architecture = records[-1].client_models.architecture
    assert architecture.tolist() == [1, 1, 1, 0, 0, 0]  # architecture 1 is the larger one
    assert np.array_equal(known[-1].client_models.architecture, architecture)


def test_error_what_does_not_go_with_own_models() -> None:
    with pytest.raises(
        ConfigError, match=r"Ditto makes a client's own model from one that all .* personal.use = \"codistil\""
    ):
        comet(Ditto())
    with pytest.raises(ConfigError, match=r"a client of Codistil has a whole model of its own, and Nested cuts a part"):
        comet(Codistil(), width=Nested(rates=(1.0, 0.5)))
    with pytest.raises(ConfigError, match=r"EnsembleTransfer teaches .* from models that clients send, and with Codis"):
        comet(Codistil(), aggregation=EnsembleTransfer())
