"""Whole runs over random fleets: only those who are there and up are asked, and the sums are the scheme's."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleet_claims import trace_of, view_of
from tests.support.runs import run
from tests.support.tasks import quadratic_task
from turnout import losses
from turnout.aggregation import FedAvg, SchemeA, SchemeB, SchemeC
from turnout.array_types import Floats
from turnout.coordinator import Plan, State, Turnover
from turnout.engine import Sequential
from turnout.engine.task import Question
from turnout.fleet import (
    Always,
    Bernoulli,
    Complete,
    Cyclic,
    Deadline,
    Diurnal,
    Fleet,
    Fraction,
    HalfAndHalf,
    Lognormal,
    Markov,
    Never,
    Random,
    Recorded,
    Resampled,
    RuanTraces,
    Scheduled,
    Stragglers,
)
from turnout.local import SGD
from turnout.protocols import Aggregation, Availability, Work
from turnout.requests import Answer, Fit, Record
from turnout.selection import Uniform
from turnout.study import Study

CLIENTS, STEPS = 6, 4
TRACE = trace_of(*((c, 40.0 * c, 40.0 * c + 100) for c in range(CLIENTS)))
AVAILABILITY = st.sampled_from(
    [
        Always(),
        Bernoulli(prob=0.5),
        Cyclic(groups=3),
        Diurnal(peak=0.9, trough=0.0, period_rounds=6, zones=3),
        HalfAndHalf(),
        Markov(join=0.3, leave=0.3),
        Never(clients=(0, 5), others=Bernoulli(prob=0.7)),
        Recorded(trace=TRACE, round_seconds=20.0),
        Resampled(size=2),
    ]
)
WORK = st.sampled_from([Complete(), Fraction(fraction=0.5, spread=0.5), RuanTraces(), Stragglers(prob=0.7)])
CLOCK = st.sampled_from(
    [
        None,
        Deadline(seconds_per_step=Lognormal(median=1.0, sigma=1.0), deadline_seconds=4.0, over_selection=1.5),
        Deadline(seconds_per_step=Lognormal(median=1.0, sigma=1.0), deadline_seconds=4.0, incomplete="drop"),
    ]
)
MEMBERSHIP = st.sampled_from(
    [
        None,
        Scheduled(arrivals={2: 3}, departures={1: 5}),
        Random(arrival_prob=0.3, departure_prob=0.1),
        Random(present=1.0, departure_prob=0.2),
    ]
)
TURNOVER = st.sampled_from([Turnover(reboot="vanilla"), Turnover(reboot="vanilla", on_departure="exclude")])
SCHEMES = st.sampled_from([FedAvg(), FedAvg(weighting="mean"), SchemeA(), SchemeB(), SchemeC()])


def expected_sum(scheme: Aggregation, record: Record, weights: Floats, counted: int) -> Any:
    """What the coefficients of a round add up to."""
    came = np.isin(record.asked, record.answered)
    done, p = record.local_steps[came], weights[record.asked[came]]
    if isinstance(scheme, FedAvg):
        return 1.0
    if isinstance(scheme, SchemeA):
        whole = done == STEPS
        return counted * p[whole].sum() / max(whole.sum(), 1)
    return p.sum() if isinstance(scheme, SchemeB) else (STEPS / done * p).sum()


@settings(max_examples=50)
@given(
    availability=AVAILABILITY,
    work=WORK,
    clock=CLOCK,
    membership=MEMBERSHIP,
    turnover=TURNOVER,
    scheme=SCHEMES,
    seed=st.integers(0, 1000),
    cohort=st.none() | st.integers(1, CLIENTS),
)
def test_property_a_run_keeps_to_its_fleet(
    availability: Availability,
    work: Work,
    clock: Deadline | None,
    membership: random.Random | None,
    turnover: Turnover,
    scheme: Aggregation,
    seed: int,
    cohort: int | None,
) -> None:
    fleet = Fleet(availability=availability, work=work, clock=clock, membership=membership)  # type: ignore[arg-type]
    cohort = cohort if isinstance(scheme, FedAvg) else None  # the schemes want everyone
    sizes = [1, 4, 2, 3, 5, 2]
    task = quadratic_task([1.0] * CLIENTS, [[float(c)] for c in range(CLIENTS)], sizes)
    plan = Plan(
        local=SGD(lr=0.1, steps=STEPS, batches="full"),
        rounds=9,
        fleet=fleet,
        turnover=turnover,
        selection=Uniform(cohort_size=cohort),
        aggregation=scheme,
    )
    final, records = run(task, plan, seed=seed)
    assert [record.round for record in records] == list(range(10))
    gone, came = follow(fleet, records)
    for record in records[1:]:
        assert np.isin(record.asked, record.up).all()
        assert np.isin(record.answered, record.asked).all()
        assert not np.isin(record.late, record.answered).any()
        assert not np.isin(record.up, gone[record.round]).any()
        assert np.isin(record.up, came[record.round]).all()
        assert (record.local_steps <= record.asked_steps).all()
        assert np.array_equal(record.asked[record.local_steps > 0], record.answered)
        assert (record.coefficients[record.local_steps == 0] == 0).all()
        if cohort is not None:
            assert len(record.asked) == min(cohort, len(record.up))
    weights, counted = weights_at_the_end(final, fleet, sizes)
    for record in records[1:] if membership is None else records[-1:]:
        if len(record.answered):
            assert np.isclose(record.coefficients.sum(), expected_sum(scheme, record, weights, counted))
    if clock is not None:
        assert all(record.costs.sim_seconds > 0 for record in records[1:])
    assert np.isfinite(float(final.model))


class Counting(Sequential):
    """The real engine, with a count of what it did."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: dict[Any, Any] = {}

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        answers = super().answer(questions)
        for (_, request), answer in zip(questions, answers, strict=True):
            if isinstance(request, Fit):
                self.trained[request.round] = dict(zip(answer.clients.tolist(), answer.steps.tolist(), strict=True))  # type: ignore[union-attr]
        return answers


@settings(max_examples=20)
@given(
    availability=AVAILABILITY,
    work=WORK,
    clock=CLOCK,
    membership=MEMBERSHIP,
    turnover=TURNOVER,
    seed=st.integers(0, 1000),
    cohort=st.none() | st.integers(1, CLIENTS),
)
def test_property_the_journals_counts_equal_what_happened(
    availability: Availability,
    work: Work,
    clock: Deadline | None,
    membership: Any,
    turnover: Turnover,
    seed: int,
    cohort: int | None,
) -> None:
    sizes, engine = [1, 4, 2, 3, 5, 2], Counting()
    task = quadratic_task([1.0] * CLIENTS, [[float(c), 1.0] for c in range(CLIENTS)], sizes)
    study = Study(
        data=task.federation,
        model=task.module,
        loss=losses.quadratic,
        local=SGD(lr=0.1, steps=STEPS, batches="full"),
        fleet=Fleet(availability=availability, work=work, clock=clock, membership=membership),
        turnover=Turnover() if membership is None else turnover,
        selection=Uniform(cohort_size=cohort),
        rounds=6,
        seeds=(seed,),
    )
    found = study.run(engine=engine).loaded
    for row in found.rounds[found.rounds["round"] > 0].itertuples():
        did = engine.trained.get(row.round, {})
        clients = found.clients[found.clients["round"] == row.round]
        up = found.up("study", seed, row.round)  # type: ignore[arg-type]
        assert row.up == len(up)
        assert row.asked == len(clients) == (len(up) if cohort is None else min(cohort, len(up)))
        assert row.answered == len(did) == int(clients["answered"].sum())
        came = clients[clients["answered"].astype(bool)]
        assert dict(zip(came["client"], came["local_steps"], strict=True)) == did
        assert row.gradient_evaluations == sum(steps * sizes[client] for client, steps in did.items())
        assert (row.bytes_down, row.bytes_up) == (16 * row.asked, 16 * row.answered)  # type: ignore[operator]
    assert set(engine.trained) <= set(found.rounds["round"])


def follow(fleet: Fleet, records: list[Record]) -> Sequence[list[Any]]:
    """Read the journal's events: who had gone, and who was there at all, before each round."""
    everyone = np.arange(CLIENTS)
    if fleet.membership is None:
        return [set()] * 10, [everyone] * 10
    there = set(fleet.membership.members(view_of(CLIENTS, 0)).tolist())
    gone, gone_by, there_by = set(), [], []
    for record in records:
        for event in record.events:
            words = event.split()
            if event.startswith("client ") and "arrived" in event:
                there.add(int(words[1]))
                gone.discard(int(words[1]))
            elif event.startswith("client ") and "left" in event:
                there.discard(int(words[1]))
                gone.add(int(words[1]))
        gone_by.append(sorted(gone))
        there_by.append(sorted(there))
    return gone_by, there_by


def weights_at_the_end(final: State, fleet: Fleet, sizes: list[int]) -> tuple[Floats, int]:
    counted = np.ones(CLIENTS, dtype=bool) if fleet.membership is None else final.members["counted"]
    held = np.where(counted, sizes, 0)
    return held / held.sum(), int(counted.sum())
