"""The server step: what is not finite is put back, whatever rule remembers it, and later rounds go on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.engines import Lying, at
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import blob_federation, blob_task, quadratic_task
from turnout import losses
from turnout.aggregation import MIFA, ClusterFedVARP, FedAvg, FedVARP, Median
from turnout.array_types import Ids
from turnout.assist import Safari
from turnout.asynchrony import FedBuff
from turnout.coordinator import Cadence, MemoryLimit, Plan, State
from turnout.coordinator.asking import Asker
from turnout.coordinator.server_step import begin, commit
from turnout.engine import Task
from turnout.engine.task import Question
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD
from turnout.protocols import Choice, Combined, Moved, Population, View
from turnout.requests import Answer, Evaluate, Fit
from turnout.row_table import RowTable
from turnout.rows import Step
from turnout.server import FedAdagrad, FedAdam, FedAvgM, FedYogi, SlowMomentum
from turnout.streams import Streams
from turnout.study.driver import Run, drive

LOCAL = SGD(lr=0.1, batch_size=5, epochs=1)
HUGE = 1e307  # finite, and so is the mean of six; divided by a rate of 0.1, or squared, it is not


def once(client: int, round: int, size: float = HUGE) -> Callable[..., Any]:
    """A lie: in one round one client's update is huge, and finite."""

    def lie(request: Any, answer: Any) -> Any:
        if not isinstance(request, Fit) or request.round != round or answer.delta is None:
            return answer
        place = at(answer, client)
        if place is None:
            return answer
        rows = answer.delta.clone()
        rows[place] = size
        return replace(answer, delta=rows)

    return lie


def finite_all_over(state: State) -> bool:
    """Whether every number that a run carries on is finite."""
    for memory in (state.server, state.aggregation, state.selection, state.local):
        for value in memory.values():
            rows = value.take(np.arange(value.num_rows)) if isinstance(value, RowTable) else torch.as_tensor(value)
            if not torch.isfinite(rows.double()).all():
                return False
    return bool(torch.isfinite(state.model).all())


RULES = {
    "fedavg": {"aggregation": Median()},
    "fedadam": {"server": FedAdam()},
    "fedyogi": {"server": FedYogi()},
    "fedadagrad": {"server": FedAdagrad()},
    "fedavgm": {"server": FedAvgM()},
    "slow momentum": {"server": SlowMomentum()},
    "mifa": {"aggregation": MIFA()},
    "fedvarp": {"aggregation": FedVARP(normalise_by_lr=True)},
    "fedvarp and fedadam": {"aggregation": FedVARP(), "server": FedAdam()},
    "cluster-fedvarp": {"aggregation": ClusterFedVARP(num_clusters=2)},
    "scaffold": {"local": replace(LOCAL, control="average")},
}


def plan_of(rule: str, **more: Any) -> Plan:
    """Six rounds of everyone; rows are asked for, so that one can be forged."""
    return Plan(**{"local": LOCAL, "rounds": 6, "evaluate": Cadence(every=10**9), **RULES[rule], **more})  # type: ignore[dict-item]


class Rows(Lying):
    """An engine that gives rows, whatever was asked for, and lies in some."""

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        asked = [
            (task, replace(r, coefficients=None, offset=None if r.offset is None else _bare(r.offset)))
            if isinstance(r, Fit)
            else (task, r)
            for task, r in questions
        ]
        return super().answer(asked)


def _bare(offset: Any) -> Any:
    return replace(offset, scale=None, weights=None)


@pytest.mark.parametrize("budget", [0, 1024], ids=["in a file", "in RAM"])
@pytest.mark.parametrize("rule", RULES)
def test_contract_one_huge_answer_costs_one_step_and_later_rounds_go_on(rule: str, budget: int) -> None:
    task = blob_task(6)
    plan = plan_of(rule, memory=MemoryLimit(table_mib=budget))
    before, _ = run(task, replace(plan, rounds=2), engine=Rows())
    during, _ = run(task, replace(plan, rounds=3), engine=Rows(once(4, 3)))
    final, records = run(task, plan, engine=Rows(once(4, 3)))
    if rule == "fedavg":  # a median is not moved by it
        assert records[3].events == ()
        return
    assert records[3].events[0].startswith("the server step was dropped: ")
    assert "; largest update norms client 4: " in records[3].events[0]
    assert " would reject it" in records[3].events[0]
    assert torch.equal(during.model, before.model)
    assert (records[3].coefficients == 0).all()
    for part in ("server", "aggregation", "local"):
        old, new = getattr(before, part), getattr(during, part)
        assert set(old) == set(new)
        for name, value in old.items():
            mine, theirs = (
                (each.take(np.arange(each.num_rows)) if isinstance(each, RowTable) else torch.as_tensor(each))
                for each in (value, new[name])
            )
            assert torch.equal(mine, theirs), (part, name)
    assert finite_all_over(final)
    assert not torch.equal(final.model, during.model)
    assert all(record.events == () for record in records[4:])
    assert all(len(record.answered) == 6 for record in records[4:])


def test_contract_a_step_that_a_sum_spoils_says_how_to_find_the_client() -> None:
    task = quadratic_task([1.0, 1.0], [[1.0], [1.0]], [1, 1])

    def lie(request: Evaluate | Fit, answer: Any) -> Any:
        spoilt = isinstance(request, Fit) and request.round == 2
        return replace(answer, reduced=torch.full_like(present(answer.reduced), -1e200)) if spoilt else answer

    plan = Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=3, server=FedAdam(lr=0.5))
    final, records = run(task, plan, engine=Lying(lie))
    assert records[2].events == (
        "the server step was dropped: server memory 'second' would not be finite; "
        "set trust.max_norm to have the client found",
    )
    assert finite_all_over(final)


@pytest.mark.parametrize("rule", ["fedadam", "mifa", "fedvarp"])
def test_contract_a_server_that_does_not_wait_drops_the_step_too(rule: str) -> None:
    fleet = Fleet(clock=Deadline(seconds_per_step=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))
    plan = plan_of(rule, rounds=12, fleet=fleet, asynchrony=FedBuff(buffer_size=3, concurrency=5))
    final, records = run(blob_task(6), plan, engine=Rows(once(1, 2)))
    said = [record for record in records if any("step was dropped" in event for event in record.events)]
    assert len(said) == 1
    assert "largest update norms client 1: " in said[0].events[0]
    assert (said[0].coefficients == 0).all()
    assert finite_all_over(final)
    assert all(len(record.answered) for record in records[said[0].round :])


def test_contract_a_server_that_does_not_wait_never_has_an_infinite_model() -> None:
    fleet = Fleet(clock=Deadline(seconds_per_step=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))
    plan = plan_of("fedavg", aggregation=FedAvg(), fleet=fleet, asynchrony=FedBuff(buffer_size=3, concurrency=5))
    final, records = run(blob_task(6), plan, engine=Rows(*(once(1, round, -1.7e308) for round in range(1, 4))))
    assert torch.isfinite(final.model).all()
    assert any("the model's squared norm would not be finite" in event for r in records for event in r.events)


@pytest.mark.parametrize(("size", "why"), [(1e308, "squared norm"), (float("nan"), "the update is not finite")])
def test_contract_a_round_of_the_servers_own_drops_a_step_that_is_not_finite(size: float, why: str) -> None:
    task = blob_task(4)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    plan = Plan(local=LOCAL, rounds=3, assist=Safari(lr=0.1, client_prob=0.0))

    def lie(request: Evaluate | Fit, answer: Any) -> Any:
        spoilt = isinstance(request, Fit) and request.on_server and request.round == 2
        return replace(answer, delta=torch.full_like(present(answer.delta), size)) if spoilt else answer

    final, records = run(task, plan, engine=Lying(lie))
    assert [event for event in records[2].events if event.startswith("server round: its step was dropped (")]
    assert any(why in event for event in records[2].events)
    assert records[1].events[0] == records[3].events[0] == "server round"
    honest, _ = run(task, plan)
    assert torch.isfinite(final.model).all()
    assert not torch.equal(final.model, honest.model)


def test_contract_running_statistics_that_are_not_finite_drop_the_step() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    task = Task(federation=blob_federation(4, low=6), module=module, loss=losses.cross_entropy)
    population = Population.of(task.federation.sizes)
    start = State.start(task.layout.flatten(module), population, task.layout.flatten_buffers(module))

    def lie(request: Evaluate | Fit, answer: Any) -> Any:
        spoilt = isinstance(request, Fit) and request.round == 2
        return replace(answer, buffers=torch.full_like(present(answer.buffers), torch.nan)) if spoilt else answer

    plan = Plan(local=SGD(lr=0.1, steps=2, batches="full"), rounds=3)
    job = Run(index=0, task=task, plan=plan, state=start, streams=Streams(0), population=population)
    records: list[Any] = []
    (final,) = drive([job], Lying(lie), lambda batch: records.extend(record for _, record in batch))
    said = "the server step was dropped: the model's running statistics would not be finite"
    assert [record.round for record in records if any(said in event for event in record.events)] == [2]
    assert torch.isfinite(present(final.buffers)).all()


@dataclass(frozen=True)
class Hoarder:
    """An aggregation whose memory of lists and dicts is not finite in round 2."""

    def combine(self, rows: Any, memory: dict[str, dict[str, Any]], view: View, ask: Asker) -> Combined:
        seen = {"last": torch.inf if view.round == 2 else float(view.round), "all": [[0.5, None, "text"]]}
        direction = rows.delta.mean(0)
        return Combined(direction=direction, coefficients=np.ones(len(rows.facts)), memory={"seen": seen})


def test_contract_numbers_in_lists_and_dicts_of_a_memory_are_looked_at_too() -> None:
    final, records = run(blob_task(4), Plan(local=LOCAL, rounds=3, aggregation=Hoarder()))  # type: ignore[arg-type]
    assert ["aggregation memory 'seen' would not be finite" in str(record.events) for record in records] == [
        *(False, False, True, False),
    ]
    assert final.aggregation["seen"]["last"] == 3.0


@dataclass(frozen=True)
class Forgetful:
    """A selection whose memory is not a number in round 2."""

    cohort_size: int | None = None

    def choose(self, pool: Ids, view: View, ask: Asker) -> Choice:
        seen = view.memory.get("seen", 0.0) + 1.0
        return replace(Choice.of(pool), memory={"seen": float("nan") if view.round == 2 else seen, "round": view.round})


def test_contract_what_a_selection_remembers_is_kept_only_if_it_is_finite() -> None:
    final, records = run(blob_task(4), Plan(local=LOCAL, rounds=4, selection=Forgetful()))  # type: ignore[arg-type]
    assert records[2].events == ("selection memory 'seen' is not finite and was left as it was",)
    assert final.selection == {"seen": 3.0, "round": 4}


@dataclass(frozen=True)
class WithGraph:
    """An aggregation and a server rule whose tensors still belong to a graph."""

    wants_norms = False

    def combine(self, rows: Any, memory: dict[str, Tensor], view: View, ask: Asker) -> Combined:
        weight = torch.tensor(0.5, dtype=rows.delta.dtype, requires_grad=True)
        return Combined(
            direction=weight * rows.delta.mean(0), coefficients=np.ones(len(rows.facts)), memory={"weight": weight}
        )

    def advance(self, model: Tensor, step: Step, memory: dict[str, Tensor]) -> Moved:
        rate = torch.tensor(1.0, dtype=model.dtype, requires_grad=True)
        return Moved(model - rate * step.direction, {"rate": rate})


def test_contract_tensors_that_belong_to_a_graph_leave_it() -> None:
    rule = WithGraph()
    final, records = run(blob_task(4), Plan(local=LOCAL, rounds=2, aggregation=rule, server=rule))  # type: ignore[arg-type]
    assert not final.model.requires_grad
    assert not final.aggregation["weight"].requires_grad
    assert not final.server["rate"].requires_grad
    assert all(len(record.answered) == 4 for record in records[1:])


def test_golden_the_largest_update_norm_of_the_first_rounds_is_recorded() -> None:
    # h = 1, lr = 1: from 0 one full step sends −e: norms 3 and 5, whose mean is 4
    task = quadratic_task([1.0, 1.0], [[3.0], [-5.0]], [1, 1])
    local = SGD(lr=1.0, steps=1, batches="full")
    _, rows = run(task, Plan(local=local, rounds=7, aggregation=FedVARP()))
    assert rows[1].metrics["update_norm"] == pytest.approx(5.0)
    assert ["update_norm" in record.metrics for record in rows] == [False, *[True] * 5, False, False]
    _, sums = run(task, Plan(local=local, rounds=1))  # only the sum is known: −3/2 + 5/2 = 1, times √2
    assert sums[1].metrics["update_norm"] == pytest.approx(2**0.5)


def rows_of(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None].expand(-1, 3).contiguous()


@pytest.mark.parametrize("budget", [0, 1 << 20], ids=["in a file", "in RAM"])
@pytest.mark.parametrize("ids", [[1], [0, 1], [0, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("look", [False, True])
def test_contract_a_step_that_is_dropped_leaves_a_table_as_it_was(budget: int, ids: Any, look: bool) -> None:
    everyone, ids = np.arange(4), np.array(ids)
    table = RowTable(4, torch.zeros(3, dtype=torch.float64), budget)
    table.put(np.array([0, 1]), rows_of(1.0, 2.0))
    table.changed[:] = False
    state = State(model=torch.zeros(3, dtype=torch.float64), aggregation={"table": table})
    for last in (np.inf, 7.0):
        before, was, seen = begin(state), table.take(everyone), table.seen.copy()
        table.put(ids, rows_of(*[5.0] * (len(ids) - 1), last))
        if look:  # what was written can be read before it is kept
            assert table.take(ids[-1:])[0, 0] == last
        assert table.seen[ids].all()
        wrong = commit(state, before)
        if last == 7.0:
            assert wrong is None
            assert table.take(ids)[-1].tolist() == [7.0] * 3
            assert np.flatnonzero(table.changed).tolist() == ids.tolist()
        else:
            assert wrong == "aggregation memory 'table'"
            assert torch.equal(table.take(everyone), was)
            assert np.array_equal(table.seen, seen)
            assert not table.changed.any()
