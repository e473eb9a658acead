"""What every fleet must do, as assertions that the tests make of our rules and the mutants must fail."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from tests.support.runs import run
from tests.support.tasks import quadratic_task
from turnout.array_types import Ids
from turnout.coordinator import Plan
from turnout.fleet import Deadline, Fleet, HalfAndHalf, Recorded, Trace
from turnout.fleet.replay import Jobs, Recording
from turnout.fleet.traces import UP, Intervals
from turnout.local import SGD
from turnout.protocols import Population, View
from turnout.requests import Record
from turnout.streams import Streams

GD = SGD(lr=0.1, steps=2, batches="full")


def view_of(
    clients: int,
    round: int = 1,
    *,
    seed: int = 0,
    labels: Ids | None = None,
    there: ArrayLike | None = None,
    seconds: float = 0.0,
    rounds: int = 1000,
) -> Any:
    """What a rule sees of so many clients of one sample each."""
    population = Population.of(np.ones(clients, dtype=np.int64), label_counts=labels)
    if there is not None:
        population = replace(population, everyone=np.asarray(there, dtype=np.int64))
    return View(
        round=round,
        rounds=rounds,
        streams=Streams(seed),
        population=population,
        model=torch.zeros(1, dtype=torch.float64),
        sim_seconds=seconds,
    )


def trace_of(*rows: Any, clients: None = None) -> Trace:
    """A trace of (client, start, end) rows in which clients are up."""
    client, start, end = (np.array(column) for column in zip(*rows, strict=True))
    states = np.full(len(rows), UP, dtype=np.int8)
    return Trace.of(Intervals(client.astype(np.int64), start.astype(float), end.astype(float), states), clients)


def recording(rows: Sequence[tuple[Any, ...]], *, rounds: int = 4, clients: int = 4, up: Any = None) -> Recording:
    """A recorded run of (client, round, asked, progress, seconds, cut off); `up`, a row per round, is everyone."""
    columns = [np.array(column) for column in zip(*sorted(rows), strict=True)]
    names = ("clients", "rounds", "asked", "progress", "seconds", "cut_off")
    jobs = Jobs(**dict(zip(names, columns, strict=True)))
    there = np.ones((rounds, clients), dtype=bool) if up is None else up
    packed = np.packbits(there, axis=1)
    return Recording(name="a run", num_clients=clients, planned_rounds=rounds, up=packed, members=None, jobs=jobs)


def assert_replays(make: Callable[..., Any] | type[Any], trace: Trace, times: list[int]) -> None:
    """A recorded fleet has up exactly whom the trace has up at that time, however often and in what order it is asked.

    `make(trace)` returns the rule with a round of ten seconds.
    """
    owner = np.repeat(np.arange(trace.num_clients), np.diff(trace.offsets))
    rule = make(trace)
    for time in times:
        now = (trace.starts <= time) & (time < trace.ends) & (trace.states == UP)
        for _ in range(2):
            got = rule.up(view_of(trace.num_clients, 1 + time // 10))
            assert np.array_equal(got, np.unique(owner[now])), f"at {time} s"


def assert_halves_lose_the_same(rule: HalfAndHalf, clients: int = 20, rounds: int = 8) -> None:
    """Each half comes in its turn, and both lose the same share, drawn anew each round."""
    absentees: Any = {1: set(), 0: set()}
    for round in range(1, rounds + 1):
        half = np.arange(clients // 2) + (0 if round % 2 == 1 else clients // 2)
        up = rule.up(view_of(clients, round))
        assert np.isin(up, half).all(), f"round {round}: somebody of the other half is up"
        assert len(up) == clients // 2 - int(0.2 * (clients // 2)), f"round {round}: {len(up)} are up"
        absentees[round % 2] |= set(np.setdiff1d(half, up).tolist())
    assert all(len(ids) > 2 for ids in absentees.values())


def assert_time_goes_on(clock: Any, *, comes_after: float = 500.0, rounds: int = 40) -> list[Record]:
    """When nobody is up, rounds pass, time passes, and those who come later are asked."""
    fleet = Fleet(availability=Recorded(trace=trace_of((1, comes_after, 1e9)), repeat=False), clock=clock)
    task = quadratic_task([1.0, 1.0], [[1.0], [2.0]], [1, 1])
    final, records = run(task, Plan(local=GD, rounds=rounds, fleet=fleet))
    assert [record.round for record in records] == list(range(rounds + 1))
    passed = [record.costs.sim_seconds for record in records[1:]]
    assert all(seconds > 0 for seconds in passed), "a round took no time"
    assert final.world["seconds"] > comes_after
    assert records[-1].answered.tolist() == [1], "the one that came was not asked"
    return records


def assert_asks_who_is_up_now(wrap: Callable[..., Any] | type[Any] = lambda rule: rule) -> None:
    """With too few up, those who are up are asked, and the shortage is recorded."""
    from turnout.selection import Uniform

    trace = trace_of((0, 0, 30), (1, 10, 20), (2, 50, 60), (0, 80, 90), (1, 80, 90), (2, 80, 90))
    rule = wrap(Recorded(trace=trace, round_seconds=10.0, repeat=False))
    task = quadratic_task([1.0] * 3, [[1.0], [2.0], [3.0]], [1, 1, 1])
    plan = Plan(local=GD, rounds=10, fleet=Fleet(availability=rule), selection=Uniform(cohort_size=2))
    _, records = run(task, plan)
    who = [record.asked.tolist() for record in records[1:]]
    assert who[:8] == [[0], [0, 1], [0], [], [], [2], [], []], who
    assert len(who[8]) == 2
    assert records[4].events == ("nobody was up",)
    assert records[3].events == ("fewer than 2 clients were asked: too few were available",)


WAITING = Deadline(seconds_per_step=1.0, idle_seconds=60.0)
