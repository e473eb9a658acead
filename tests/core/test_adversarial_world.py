"""The round against a world that knows nothing beforehand and returns whatever it likes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.optional import present
from turnout.aggregation import FedAvg, FedNova, FedVARP, Median, SchemeC
from turnout.asynchrony import FedBuff
from turnout.coordinator import Plan, State, coordinate
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD
from turnout.protocols import Aggregation, Population, Server
from turnout.requests import (
    NOBODY,
    Census,
    Collect,
    Dispatch,
    Evaluate,
    Evaluated,
    Expect,
    Expected,
    Outcome,
    Present,
    Recall,
    Recalled,
    Record,
    Returns,
    Settle,
    Settled,
    Trained,
)
from turnout.server import SGD as ServerSGD
from turnout.server import FedAdam
from turnout.streams import Streams

CLIENTS, SIZE = 6, 3
LIES = (
    "nothing",
    "honest",
    "partial",
    "too many steps",
    "no steps",
    "nan",
    "infinite",
    "huge",
    "wrong shape",
    "broadcastable",
    "another round",
    "twice",
    "a stranger",
    "no loss",
    "in place",
    "another type",
)


class World:
    """Clients return messages in any order, with any lie, at any time or never. Nothing is known beforehand."""

    def __init__(self, lies: Any, rng: np.random.Generator) -> None:
        self.lies, self.rng = lies, rng
        self.at_work: dict[int, Any] = {}  # client -> order
        self.handed_out: list[int] = []

    def answer(self, request: Any) -> Any:
        if isinstance(request, Census):
            return Present(members=None, up=np.flatnonzero(self.rng.random(CLIENTS) < 0.8))
        if isinstance(request, Dispatch):
            clients = request.order.clients if request.sequence is None else request.sequence
            room = len(clients) if request.sequence is None else present(request.most_at_work) - len(self.at_work)
            self.handed_out = clients[: max(room, 0)].tolist()
            if request.sequence is None:
                self.at_work.clear()
            self.at_work |= dict.fromkeys(self.handed_out, request.order)
            return None
        if isinstance(request, Collect):
            return self.collect(request)
        if isinstance(request, Settle):
            return Settled(shared=present(request.order.shared) + 0.1)
        if isinstance(request, Recall):
            return Recalled(total=None)
        if isinstance(request, Expect):
            return Expected()
        return Evaluated(metrics={"loss": 1.0}) if isinstance(request, Evaluate) else None

    def collect(self, request: Any) -> Returns:
        wanted = [client for client in self.at_work if client in set(request.clients.tolist())]
        self.rng.shuffle(wanted)
        back, late = [], []
        for client in wanted if request.first is None else wanted[: request.first]:
            lie = self.lies(client)
            if lie == "nothing":
                late += [client] if self.rng.random() < 0.5 else []
            else:
                back.append((client, lie))
        back.sort()
        clients = np.array([client for client, _ in back], dtype=np.int64)
        orders = {client: self.at_work[client] for client, _ in back}
        if request.first is not None:
            for client, _ in back:
                del self.at_work[client]
        return Returns(
            clients=clients,
            steps=np.full(len(clients), -1),
            rounds=np.array([orders[client].round for client in clients.tolist()], dtype=np.int64),
            work=self.message(request, back, orders) if back else None,
            facts=None,
            late=np.array(sorted(late), dtype=np.int64) if request.first is None else NOBODY,
            sent=np.array(sorted(self.handed_out), dtype=np.int64),
            seconds=1.0,
        )

    def message(self, request: Any, back: list[tuple[int, str]], orders: Any) -> Any:
        kinds = dict(back)
        if "another type" in kinds.values():
            return "an update"
        asked = np.array([orders[c].steps[np.searchsorted(orders[c].clients, c)] for c in kinds])
        size = SIZE + 1 if "wrong shape" in kinds.values() else 1 if "broadcastable" in kinds.values() else SIZE
        delta = torch.from_numpy(self.rng.normal(size=(len(kinds), size)))
        clients, steps, loss = np.array(list(kinds)), asked.copy(), np.ones(len(kinds))
        for at, lie in enumerate(kinds.values()):
            told = {"partial": max(1, asked[at] - 1), "too many steps": asked[at] + 1, "no steps": 0}
            steps[at] = told.get(lie, steps[at])
            delta[at] = {"nan": torch.nan, "infinite": torch.inf, "huge": 1e300}.get(lie, delta[at])
            loss[at] = np.nan if lie == "no loss" else 1.0
            clients[at] = CLIENTS + 5 if lie == "a stranger" else clients[at]
        if "in place" in kinds.values():
            delta = request.order.model.new_tensor(0.0) + delta
            request.order.weighing.asked.weights.setflags(write=False)
        picked = np.arange(len(clients))
        if "twice" in kinds.values():
            picked = np.append(picked, list(kinds.values()).index("twice"))
        self.rng.shuffle(picked)
        return Trained(
            clients=clients[picked],
            steps=steps[picked],
            loss=loss[picked],
            finite=np.ones(len(picked), dtype=bool),
            delta=delta[torch.from_numpy(picked)],
            round=request.order.round - 1 if "another round" in kinds.values() else None,
        )


def driven(plan: Plan, lies: Any, seed: int) -> tuple[State, list[Record]]:
    """Run a plan in such a world."""
    population = Population.of(np.arange(1, CLIENTS + 1))
    state = State.start(torch.zeros(SIZE, dtype=torch.float64), population)
    records: list[Any]
    world, records, answer = World(lies, np.random.default_rng(seed)), [], None
    steps = coordinate(plan, population, state, Streams(seed))
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            return stop.value, records
        answer = world.answer(request)
        records += [request] if isinstance(request, Record) else []


PLAN = Plan(local=SGD(lr=0.1, steps=3), rounds=6)
BUFFERED = replace(PLAN, asynchrony=FedBuff(buffer_size=2, concurrency=4), fleet=Fleet(clock=Deadline()))
AGGREGATIONS = st.sampled_from([FedAvg(weighting="mean"), FedNova(), Median(), FedVARP()])


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    waits=st.booleans(),
    aggregation=AGGREGATIONS,
    server=st.sampled_from([ServerSGD(), FedAdam(lr=0.1)]),
    tempted=st.lists(st.sampled_from(LIES), min_size=1, max_size=5),
)
def test_property_outcomes_add_up_and_the_model_stays_finite(
    seed: int, waits: bool, aggregation: Aggregation, server: Server, tempted: list[str]
) -> None:
    draw = np.random.default_rng(seed + 1)
    base = PLAN if waits else BUFFERED
    plan = replace(base, aggregation=aggregation, server=server)
    final, records = driven(plan, lambda client: tempted[draw.integers(len(tempted))], seed)
    assert bool(torch.isfinite(final.model).all())
    assert [record.round for record in records] == list(range(PLAN.rounds + 1))
    at_work: set[int] = set()
    for record in records[1:]:
        assert len(record.outcomes) == len(record.asked) == len(record.coefficients)
        ended = {int(client): Outcome(code) for client, code in zip(record.asked, record.outcomes, strict=True)}
        used = {client for client, outcome in ended.items() if outcome in (Outcome.COMPLETE, Outcome.PARTIAL)}
        assert used == set(record.answered.tolist())
        assert {c for c, outcome in ended.items() if outcome == Outcome.REJECTED} == set(record.rejected)
        assert all(isinstance(reason, str) and reason for reason in record.rejected.values())
        assert {c for c, outcome in ended.items() if outcome == Outcome.LATE} == set(record.late.tolist())
        now = {client for client, outcome in ended.items() if outcome == Outcome.AT_WORK}
        at_work = (at_work | now) - {client for client, outcome in ended.items() if outcome != Outcome.AT_WORK}
        assert np.isfinite(record.coefficients).all()
    assert at_work == set(final.jobs["clients"].tolist() if final.jobs else [])


@pytest.mark.parametrize("plan", [PLAN, BUFFERED], ids=["waits", "does not wait"])
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("too many steps", "expected 1 to 3 local steps, got 4"),
        ("no steps", "expected 1 to 3 local steps, got 0"),
        ("nan", "the update is not finite"),
        ("wrong shape", "the answer's rows do not have 3 numbers"),
        ("broadcastable", "the answer's rows do not have 3 numbers"),
        ("another round", "the answer is for round"),
        ("another type", "the answer is of type str"),
        ("no loss", "the loss is not a number"),
        ("twice", "answered 2 times"),
        ("a stranger", "no answer came"),
    ],
)
def test_contract_each_lie_is_rejected_with_its_reason_whether_the_server_waits_or_not(
    plan: Plan, lie: str, reason: str
) -> None:
    final, records = driven(plan, lambda client: lie, 3)
    reasons = [why for record in records for why in record.rejected.values()]
    assert reasons
    assert all(why.startswith(reason) for why in reasons)
    assert lie == "twice" or not final.model.any()  # one of them answers twice, the others are honest


def test_golden_partial_work_is_weighed_by_what_came_back() -> None:
    plan = replace(PLAN, aggregation=SchemeC(), rounds=1)
    lies = {0: "honest", 1: "partial"}
    _, records = driven(plan, lambda client: lies.get(client, "nothing"), 5)
    record = records[1]
    weights, done = np.arange(1, CLIENTS + 1) / 21, dict(zip(record.asked.tolist(), record.local_steps, strict=True))
    for client, coefficient in zip(record.asked.tolist(), record.coefficients, strict=True):
        expected = 3 / done[client] * weights[client] if done[client] else 0.0
        assert coefficient == pytest.approx(expected)
    assert done.get(0, 3) == 3
    assert done.get(1, 2) == 2
