"""Clients of different architectures: who has which, and what averaging, costs and engines make of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import Turnout
from tests.support.families import LOCAL, family_run, family_task, members_of
from tests.support.runs import run
from turnout.aggregation import FedAvg
from turnout.array_types import Ids
from turnout.coordinator import Plan
from turnout.coordinator.widths import check_widths, parts_for
from turnout.engine import Sequential, Task, Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Deadline, Fleet
from turnout.models import MLP, Family
from turnout.models.layout import Layout
from turnout.protocols import Ask, Choice, Population, View
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.submodels import Devices
from turnout.width import Architectures

MEAN = FedAvg(weighting="mean")
NUMBERS = (0, 1, 0, 1, 1, 0)


def view_of(clients: int, seconds: tuple[float, ...] | None = None, seed: int = 0) -> View:
    devices = None if seconds is None else Devices(seconds_per_step=np.array(seconds))
    people = Population.of(np.full(clients, 3))
    return View(round=1, rounds=2, streams=Streams(seed), population=people, model=torch.zeros(3), devices=devices)


def test_golden_the_fastest_devices_have_the_largest_model() -> None:
    rule, seconds = Architectures(assign="by-speed", shares=(0.5, 0.25, 0.25)), (4.0, 1.0, 3.0, 2.0)
    found = rule.members_of(np.arange(4), (10, 30, 20), view_of(4, seconds))
    assert found.tolist() == [0, 1, 0, 2]
    with pytest.raises(ConfigError, match=r'assign = "by-speed" needs to know how fast devices are.*Set fleet.clock'):
        rule.members_of(np.arange(4), (10, 30, 20), view_of(4))


@given(clients=st.integers(1, 30), members=st.integers(1, 4), seed=st.integers(0, 5))
def test_property_shares_are_met_and_do_not_change_with_the_round(clients: int, members: int, seed: int) -> None:
    view, rule = view_of(clients, seed=seed), Architectures()
    everyone = rule.members_of(np.arange(clients), (1,) * members, view)
    counts = np.bincount(everyone, minlength=members)
    assert counts.max() - counts.min() <= 1
    some = np.arange(0, clients, 2)
    assert np.array_equal(rule.members_of(some, (1,) * members, view), everyone[some])


def alone(task: Task, number: int) -> Task:
    """Return the task of one architecture by itself, from the same start."""
    members = members_of(task)
    start = task.layout.flatten(task.module)[members.parts.members[number].columns]
    module = members.cut((number,))
    return Task(federation=task.federation, module=Layout.of(module).load(module, start), loss=task.loss)


def test_identity_one_architecture_is_fedavg_on_its_model() -> None:
    task = family_task(Family(server=MLP(hidden=(7, 4)), clients=(MLP(hidden=(4,)),)))
    state, records = family_run(task, width=Architectures(), selection=Uniform(cohort_size=3))
    single, plain = run(alone(task, 0), Plan(local=LOCAL, rounds=3, selection=Uniform(cohort_size=3)))
    parts = members_of(task).parts
    assert torch.equal(state.model[parts.members[0].columns], single.model)
    assert torch.equal(state.model[parts.server.columns], task.layout.flatten(task.module)[parts.server.columns])
    assert records[-1].metrics["loss_of_architecture_0"] == pytest.approx(plain[-1].metrics["loss"])
    assert [r.costs.bytes_up for r in records] == [r.costs.bytes_up for r in plain]
    assert "nobody trains the server's model" in records[0].events[0]


def test_identity_each_architecture_is_averaged_over_its_own_clients() -> None:
    task = family_task()
    state, records = family_run(task, rounds=1, width=Architectures(assign="listed", numbers=NUMBERS), aggregation=MEAN)
    for number, part in enumerate(members_of(task).parts.members):
        own = np.flatnonzero(np.array(NUMBERS) == number)
        single = alone(task, number)
        only, _ = run(single, Plan(local=LOCAL, rounds=1, aggregation=MEAN, selection=Listed(own)))
        assert torch.allclose(state.model[part.columns], only.model, rtol=0, atol=1e-12)
    sizes = np.array(members_of(task).sizes)[list(NUMBERS)]
    assert (records[1].costs.bytes_down, records[1].costs.bytes_up) == (8 * sizes.sum(), 8 * sizes.sum())


class Listed:
    """A selection of one's own: the same clients in every round."""

    cohort_size = None

    def __init__(self, clients: Ids) -> None:
        self.clients = clients

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        return Choice.of(self.clients)


def test_engine_engines_agree_and_a_run_goes_on_from_its_state() -> None:
    task = family_task()
    how: dict[str, Any] = {"width": Architectures(), "selection": Uniform(cohort_size=4)}
    (one, _), (other, _) = (family_run(task, engine=engine, **how) for engine in (Sequential(), Vectorised("cpu")))
    assert torch.allclose(one.model, other.model, rtol=0, atol=1e-12)
    half, _ = family_run(task, rounds=2, **how)
    assert torch.equal(family_run(task, state=half, **how)[0].model, one.model)


def test_golden_a_step_of_a_member_takes_its_share_of_the_servers_time() -> None:
    task = family_task()
    clock = Deadline(seconds_per_step=(1.0,) * 6, down_bandwidth=1e9, up_bandwidth=1e9)
    how: dict[str, Any] = {"width": Architectures(assign="listed", numbers=(0,) * 6), "fleet": Fleet(clock=clock)}
    _, records = family_run(task, rounds=1, **how)
    cost = members_of(task).parts.members[0].step_cost
    assert records[1].costs.sim_seconds == pytest.approx(3 * cost, rel=1e-3)


def test_error_settings_that_do_not_fit_the_family_or_the_clients() -> None:
    task = family_task()
    for rule, message in (
        (Architectures(shares=(0.5, 0.3, 0.2)), r"got 3 shares for 2 models in model.clients"),
        (Architectures(assign="listed", numbers=(0, 1, 2, 0, 0, 0)), r"numbers below 2.*got 2. Change width.numbers"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_widths(Plan(local=LOCAL, rounds=1, width=rule, slices=members_of(task)), has_classes=True)
    with pytest.raises(ConfigError, match=r"one number per client; got 2 for 6 clients. Change width.numbers"):
        family_run(task, width=Architectures(assign="listed", numbers=(0, 1)))
    with pytest.raises(ConfigError, match=r"needs the members of a family"):
        parts_for(Plan(local=LOCAL, rounds=1, width=Architectures()), view_of(3), np.arange(3), np.ones(3, dtype=int))
    with pytest.raises(ConfigError, match=r'uses numbers only with assign = "listed"'):
        Architectures(numbers=(0, 1))


def test_contract_architectures_of_a_study_file_are_checked(tmp_path: Path, turnout: Turnout) -> None:
    text = """
name = "family"
rounds = 1
data = { use = "digits", clients = 4 }
model = { use = "family", server = "mlp", clients = ["softmax", "mlp"] }
width = { use = "architectures", assign = "by-speed" }
local = { lr = 0.1, epochs = 1 }
"""
    (tmp_path / "study.toml").write_text(text)
    said = turnout("check", str(tmp_path / "study.toml"))
    assert said.code == 2
    assert "needs a clock that knows how fast devices are" in said.err
    (tmp_path / "study.toml").write_text(text.replace(', assign = "by-speed"', ""))
    assert turnout("check", str(tmp_path / "study.toml")).code == 0
