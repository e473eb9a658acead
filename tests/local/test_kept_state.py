"""Solver state that clients keep between rounds: momentum that outlives a round, and a solver of one's own."""

import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import Median
from turnout.coordinator import Plan, State
from turnout.coordinator.saving import restored, saved, tables_of
from turnout.engine import EngineWrapper, Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.filtering import Greedy
from turnout.fleet import Cyclic, Deadline, Fleet
from turnout.local import SGD
from turnout.protocols import Population
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study.driver import Run, drive

NEVER = SGD(lr=0.1, steps=1, momentum=0.5, momentum_reset="never")


def test_identity_one_client_with_one_step_a_round_is_momentum_sgd_without_rounds() -> None:
    task = quadratic_task([2.0], [[4.0]], [3])
    final, _ = run(task, Plan(local=NEVER, rounds=6))
    point = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([point], lr=0.1, momentum=0.5)
    for _ in range(6):
        optimiser.zero_grad()
        (point.square() - 4.0 * point).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert torch.allclose(final.model, point.detach(), rtol=0, atol=1e-14)
    reset, _ = run(task, Plan(local=replace(NEVER, momentum_reset="round"), rounds=6))
    assert not torch.allclose(final.model, reset.model)


def test_golden_two_rounds_of_two_clients_by_hand() -> None:
    # F_i = ½x² − e_i x, e = (4, 0); η = ½, ρ = ½, one step, equal weights, x = 0, v = 0
    task = quadratic_task([1.0, 1.0], [[4.0], [0.0]], [1, 1])
    final, _ = run(task, Plan(local=replace(NEVER, lr=0.5), rounds=2))
    # round 1: g = (−4, 0), v = (−4, 0), x_i = (2, 0), x = 1
    # round 2: g = (−3, 1), v = (½·−4 − 3, 0 + 1) = (−5, 1), x_i = 1 − ½·v = (3.5, 0.5), x = 2
    assert final.model.tolist() == [2.0]


def test_contract_a_client_that_is_not_asked_keeps_what_it_has() -> None:
    # two clients in turn, each alone in its round: rounds 1 and 3 are client 0's
    task = quadratic_task([1.0, 1.0], [[4.0], [0.0]], [1, 1])
    plan = Plan(local=replace(NEVER, lr=0.5), fleet=Fleet(availability=Cyclic(groups=2, grouping="ids")), rounds=3)
    final, records = run(task, plan)
    x, velocity = 0.0, {0: 0.0, 1: 0.0}
    for record in records[1:]:
        (client,) = record.asked.tolist()
        velocity[client] = 0.5 * velocity[client] + x - (4.0, 0.0)[client]
        x -= 0.5 * velocity[client]
    assert final.model.tolist() == pytest.approx([x])
    assert [record.asked.tolist() for record in records[1:]] in ([[0], [1], [0]], [[1], [0], [1]])


class Spoiled(EngineWrapper):
    """The real engine, but client 0's first update, or its state, is not a number."""

    def __init__(self, what: str) -> None:
        super().__init__(Sequential())
        self.what = what

    def answer(self, questions: Any) -> Any:
        answers: Any = super().answer(questions)
        for (_, request), answer in zip(questions, answers, strict=True):
            if getattr(request, "kept", None) and request.round == 1 and 0 in request.clients:
                rows = answer.kept["velocity"] if self.what == "state" else answer.delta
                rows[0] = torch.nan
        return answers


@pytest.mark.parametrize("what", ["state", "update"])
def test_contract_a_rejected_client_forgets_what_the_round_taught_it(what: str) -> None:
    task = quadratic_task([1.0, 1.0], [[4.0], [0.0]], [1, 1])
    plan = Plan(local=replace(NEVER, lr=0.5), aggregation=Median(), rounds=2)
    final, records = run(task, plan, engine=Spoiled(what))
    assert set(records[1].rejected) == {0}
    assert ("solver state" in records[1].rejected[0]) == (what == "state")
    # round 1: only client 1: g = 0, x = 0. round 2: v = (−4, 0), x_i = (2, 0), median 1
    assert final.model.tolist() == [1.0]
    assert tables_of(final)["world.store solver velocity"].take(np.arange(2)).tolist() == [[-4.0], [0.0]]


def test_engine_the_engines_agree(any_engine: Any) -> None:
    task = blob_task(6)
    local = SGD(lr=0.1, batch_size=3, steps=(1, 4), momentum=0.9, momentum_reset="never", weight_decay=0.01)
    plan = Plan(local=local, selection=Uniform(cohort_size=4), rounds=5)
    assert torch.allclose(run(task, plan)[0].model, run(task, plan, engine=any_engine())[0].model, rtol=0, atol=1e-11)


def test_contract_saved_half_way_and_restored_ends_the_same() -> None:
    task, plan = blob_task(6), Plan(local=replace(NEVER, steps=3), selection=Uniform(cohort_size=3), rounds=6)
    whole, _ = run(task, plan)
    half, _ = run(task, replace(plan, rounds=3))
    tensors, rest = saved(half)
    state = restored({k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(rest)), half)
    everyone = np.arange(6)
    for name, table in tables_of(half).items():
        tables_of(state)[name].put(everyone, table.take(everyone))
    population = Population.of(task.federation.sizes)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(0), population=population)
    final: State
    (final,) = drive([job], Sequential(), lambda batch: None)
    assert torch.equal(final.model, whole.model)


def test_contract_a_filter_that_trains_clients_hands_their_state_on() -> None:
    task = blob_task(6)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    plan = Plan(local=replace(NEVER, steps=2), filtering=Greedy(), selection=Uniform(cohort_size=2), rounds=4)
    final, records = run(task, plan)
    table = tables_of(final)["world.store solver velocity"].take(np.arange(6))
    answered = np.unique(np.concatenate([record.answered for record in records[1:]]))
    assert np.flatnonzero(table.abs().sum(1).numpy()).tolist() == answered.tolist()


class Heavy:
    """A solver of one's own: momentum that each client keeps."""

    keeps: ClassVar[tuple[str, ...]] = ("speed",)

    def begin(self, params: list[Tensor]) -> list[dict[str, Tensor]]:
        return [{"speed": torch.zeros_like(param)} for param in params]

    def update(self, slot: Any) -> None:
        speed = slot.state["speed"][: len(slot.param)]
        speed.mul_(0.5).add_(slot.grad)
        slot.param.sub_(speed, alpha=0.1)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised("cpu", block=2)])
def test_identity_a_solver_of_ones_own_keeps_its_state_too(engine: Any) -> None:
    task = blob_task(4)
    plan = Plan(local=Heavy(), rounds=4)  # type: ignore[arg-type]  # completed with defaults: one full-batch epoch
    same = Plan(local=replace(NEVER, batches="full"), rounds=4)
    assert torch.allclose(run(task, plan, engine=engine)[0].model, run(task, same)[0].model, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised("cpu", block=2)])
def test_error_an_entry_that_begin_does_not_make(engine: Any) -> None:
    class Wrong(Heavy):
        keeps: ClassVar[tuple[str, ...]] = ("velocity",)

    with pytest.raises(ConfigError, match=r"Wrong keeps 'velocity', so its begin needs to make a tensor.*got none"):
        run(blob_task(3), Plan(local=Wrong(), rounds=1), engine=engine)  # type: ignore[arg-type]


def test_error_what_it_does_not_go_with() -> None:
    from turnout.asynchrony import FedBuff

    with pytest.raises(ConfigError, match=r"solver state that clients keep.*momentum_reset"):
        run(
            blob_task(4),
            Plan(
                local=NEVER, rounds=1, fleet=Fleet(clock=Deadline()), asynchrony=FedBuff(buffer_size=2, concurrency=2)
            ),
        )
    with pytest.raises(ConfigError, match="momentum"):
        SGD(lr=0.1, steps=1, momentum_reset="never")
