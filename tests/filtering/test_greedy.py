"""FilFL's greedy filter: exact properties, a case by hand, brute force, and the whole round."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.filtering_asking import AcceptAll, Ear, distance_to
from tests.support.runs import run
from tests.support.tasks import PointModel, held_out_test_set, server_of, train_of
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence, Plan, State
from turnout.data import Digits
from turnout.data.federation import Held, from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.task import Question
from turnout.errors import ConfigError, DataError
from turnout.filtering import Greedy
from turnout.filtering.greedy import UpdateSums, accepts
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.models import Softmax
from turnout.protocols import Kept, Population
from turnout.requests import Answer, Fit, Record, Score
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study import Study
from turnout.study.driver import Run, drive

LOCAL = SGD(lr=1.0, steps=1, batches="full")  # h = 1: one step lands on e_i


def point_task(points: list[float], server: float, sizes: list[int] | None = None) -> Task:
    """Client i pulls to points[i]; the server's loss is ½x² − server·x."""
    sizes = sizes or [1] * len(points)
    rows = [
        (torch.zeros(n, 1, dtype=torch.float64), torch.tensor([[1.0, p]] * n, dtype=torch.float64))
        for p, n in zip(points, sizes, strict=True)
    ]
    held = (torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0, server]], dtype=torch.float64))
    return Task(federation=from_clients(rows, server=held), module=PointModel(1), loss=losses.quadratic)


@pytest.mark.parametrize(
    ("a", "b", "coin", "expected"),
    [
        (1, 0, 0.99, True),
        (0, 1, 0.0, False),
        (0, 0, 0.99, True),
        (-1, -2, 0.99, True),
        (1, 1, 0.49, True),
        (1, 1, 0.5, False),
        (3, 1, 0.74, True),
        (3, 1, 0.76, False),
    ],
)
def test_golden_randomised_acceptance(a: int, b: int, coin: float, expected: bool) -> None:
    assert accepts(a, b, "randomised", coin) is expected


def test_golden_deterministic_acceptance_is_strict_unless_ties_are_taken() -> None:
    assert accepts(2, 1, "deterministic", 0)
    assert not accepts(1, 1, "deterministic", 0)
    assert accepts(1, 1, "deterministic", 0, ties=True)
    assert not accepts(-2, -1, "deterministic", 0)


@given(seed=st.integers(0, 50), clients=st.integers(1, 9), mode=st.sampled_from(["deterministic", "randomised"]))
@settings(max_examples=40)
def test_property_the_two_sets_meet_and_evaluations_are_two_a_client(seed: int, clients: int, mode: Any) -> None:
    rng = np.random.default_rng(seed)
    ear = Ear(torch.tensor(rng.normal(size=(clients, 3))), distance_to(torch.tensor(rng.normal(size=3))))
    kept = ear.hear(Greedy(mode=mode), np.arange(clients), seed)
    assert np.isin(kept.clients, np.arange(clients)).all()
    assert sum(len(m) for m in ear.models) <= 2 * clients + 2
    if len(kept.clients):  # X = Y in the end: the last average asked of either set is that of the kept
        mean = -ear.deltas[torch.from_numpy(kept.clients)].mean(0)
        seen = torch.cat(ear.models)
        assert float((seen - mean).abs().max(1).values.min()) < 1e-9


@given(seed=st.integers(0, 30))
@settings(max_examples=20)
def test_property_brute_force_bounds_the_reward_from_above(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deltas, loss = torch.tensor(rng.normal(size=(7, 2))), distance_to(torch.tensor(rng.normal(size=2)))
    subsets = [list(s) for n in range(1, 8) for s in itertools.combinations(range(7), n)]
    best = max(10 - loss(-deltas[s].mean(0)) for s in subsets)
    for mode in ("deterministic", "randomised"):
        kept = Ear(deltas, loss).hear(Greedy(mode=mode), np.arange(7), seed)
        reward = 10 - loss(-deltas[torch.from_numpy(kept.clients)].mean(0))
        assert reward <= best + 1e-9
        assert reward >= 0.5 * best


def test_identity_identical_models_keep_all_when_randomised_and_one_when_deterministic() -> None:
    ear: Callable[..., Any] = lambda: Ear(torch.ones(6, 2, dtype=torch.float64), distance_to(torch.zeros(2)))  # noqa: E731
    assert len(ear().hear(Greedy(mode="randomised"), np.arange(6)).clients) == 6
    assert len(ear().hear(Greedy(mode="deterministic"), np.arange(6)).clients) == 1
    assert len(ear().hear(Greedy(mode="deterministic", ties=True), np.arange(6)).clients) == 6


def test_golden_a_harmful_client_is_left_out() -> None:
    # models 1, 1 and −9; the held-out set wants 1: {0, 1} is exact, with 2 the average is −7/3
    ear = Ear(torch.tensor([[-1.0], [-1.0], [9.0]], dtype=torch.float64), distance_to(torch.tensor([1.0])))
    for seed in range(8):  # whatever the order
        assert 2 not in ear.hear(Greedy(), np.arange(3), seed).clients


@pytest.mark.parametrize(("empty", "keeps_someone"), [("offset", True), ("global", False), ("-inf", True)])
def test_golden_the_empty_set_by_its_three_readings(empty: Any, keeps_someone: bool) -> None:
    # everyone makes it worse than staying at 0: only "global" may keep nobody
    ear = Ear(torch.tensor([[5.0], [6.0]], dtype=torch.float64), lambda m: float(m.abs().sum()) * 0.1)
    kept = ear.hear(Greedy(empty=empty), np.arange(2))
    assert (len(kept.clients) > 0) is keeps_someone


def test_contract_looks_happen_first_every_h_rounds_and_when_others_are_up() -> None:
    ear, filtering, pool = (
        Ear(torch.ones(4, 1, dtype=torch.float64), distance_to(torch.zeros(1))),
        Greedy(every=5),
        np.arange(4),
    )
    first = ear.hear(filtering, pool, round=1)
    assert first.trained is not None
    assert ear.hear(filtering, pool, round=2, memory=first.memory).trained is None
    assert ear.hear(filtering, pool, round=5, memory=first.memory).trained is not None
    fewer = ear.hear(filtering, pool[:3], round=2, memory=first.memory)
    assert fewer.trained is not None


def test_contract_at_most_n_are_considered() -> None:
    ear = Ear(torch.ones(9, 1, dtype=torch.float64), distance_to(torch.zeros(1)))
    kept = ear.hear(Greedy(most=4, mode="randomised"), np.arange(9))
    assert len(kept.trained.clients) == 4
    assert kept.metrics == {"filter_kept": 4.0, "filter_considered": 4.0}


class Spy(Vectorised):
    def __init__(self) -> None:
        super().__init__("cpu", block=8)
        self.trained: list[Any]
        self.trained, self.scored = [], 0

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        for _, request in questions:
            if isinstance(request, Fit):
                self.trained.append((request.round, request.clients.tolist()))
            if isinstance(request, Score):
                self.scored += len(request.models)
        return super().answer(questions)


@pytest.mark.parametrize("prob", [1.0, 0.6])
def test_identity_accepting_everyone_is_the_base_run(prob: float) -> None:
    task = point_task([1.0, 2.0, -3.0, 4.0, 0.5], 1.0)
    plan = Plan(
        local=SGD(lr=0.3, steps=2, batches="full"),
        rounds=7,
        fleet=Fleet(availability=Bernoulli(prob=prob)),
        selection=Uniform(cohort_size=2),
        aggregation=FedAvg(weighting="mean"),
        evaluate=Cadence(every=10**9),
    )
    base, _ = run(task, plan)
    filtered, _ = run(task, replace(plan, filtering=AcceptAll(every=3)))
    assert torch.allclose(base.model, filtered.model, rtol=0, atol=1e-12)


def test_contract_a_look_trains_once_and_the_round_uses_those_rows() -> None:
    task = point_task([1.0, 1.0, 1.0, -9.0], 1.0)
    engine = Spy()
    plan = Plan(
        local=LOCAL,
        rounds=6,
        filtering=Greedy(every=5, ties=True),
        selection=Uniform(cohort_size=2),
        aggregation=FedAvg(weighting="mean"),
    )
    final, records = run(task, plan, engine=engine)
    by_round: dict[Any, Any] = {}
    for round, clients in engine.trained:
        by_round.setdefault(round, []).append(clients)
    assert by_round[1] == [[0, 1, 2, 3]]
    assert by_round[5] == [[0, 1, 2, 3]]
    assert all(len(by_round[r]) == 1 and len(by_round[r][0]) == 2 and 3 not in by_round[r][0] for r in (2, 3, 4, 6))
    assert float(final.model) == pytest.approx(1.0)
    assert records[1].metrics["filter_considered"] == 4
    assert records[1].costs.bytes_down == 4 * 8
    assert records[1].costs.gradient_evaluations == 4
    assert records[2].costs.bytes_down == 2 * 8
    assert records[1].costs.probe_evaluations == engine.scored // 2


def test_contract_scores_on_a_clients_own_hold_out() -> None:
    base = point_task([1.0, 2.0], 0.0).federation
    held = Held(train_of(base).x, train_of(base).y, train_of(base).offsets)
    task = Task(federation=replace(base, holdout=held, server=None), module=PointModel(1), loss=losses.quadratic)
    _, records = run(task, Plan(local=LOCAL, rounds=1, filtering=Greedy(on="client", ties=True)))
    assert records[-1].metrics["filter_kept"] >= 1


class Judges(Sequential):
    """The real engine, with a note of whose samples models were scored on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any]
        self.asked, self.models = [], 0

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        scores = [request for _, request in questions if isinstance(request, Score)]
        self.asked += [(request.round, request.client) for request in scores]
        self.models += sum(len(request.models) for request in scores)
        return super().answer(questions)


def run_with_holdouts(sizes: list[int], rounds: int = 12, every: int = 1) -> tuple[Judges, list[Record]]:
    """Filter on the hold-outs of clients that hold out so many samples each."""
    base = point_task([1.0, 2.0, 3.0, 4.0], 0.0).federation
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    held = Held(train_of(base).x[:1].repeat(sum(sizes), 1), train_of(base).y[:1].repeat(sum(sizes), 1), offsets)
    federation = replace(base, holdout=held if sum(sizes) else None, server=None)
    task = Task(federation=federation, module=PointModel(1), loss=losses.quadratic)
    population = replace(Population.of(federation.sizes), holdout_sizes=np.array(sizes))
    records: list[Any]
    engine, records = Judges(), []
    plan = Plan(local=LOCAL, rounds=rounds, filtering=Greedy(on="client", every=every), evaluate=Cadence(every=10**9))
    state = State.start(task.layout.flatten(task.module), population)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(0), population=population)
    drive([job], engine, lambda batch: records.extend(r for _, r in batch))
    return engine, records


def test_contract_one_drawn_client_judges_a_look_and_only_those_with_a_hold_out_are_drawn() -> None:
    engine, records = run_with_holdouts([2, 0, 1, 3])
    judges: dict[Any, Any] = {}
    for round, client in engine.asked:
        judges.setdefault(round, set()).add(client)
    assert sorted(judges) == list(range(1, 13))
    assert all(len(each) == 1 for each in judges.values())
    assert set.union(*judges.values()) == {0, 2, 3}
    assert all(record.costs.probe_evaluations > 0 for record in records[1:])


def test_contract_models_that_a_client_scores_are_sent_to_it_and_billed() -> None:
    engine, (_, record) = run_with_holdouts([1, 1, 1, 1], rounds=1)
    assert record.costs.bytes_down == 8 * (4 + engine.models)  # four to train, and each model to the judge
    server = Judges()
    _, (_, alone) = run(
        point_task([1.0, 2.0, 3.0, 4.0], 0.0), Plan(local=LOCAL, rounds=1, filtering=Greedy()), engine=server
    )
    assert server.models > 0
    assert alone.costs.bytes_down == 8 * 4


def test_error_nobody_holds_anything_out() -> None:
    with pytest.raises(ConfigError, match=r"needs samples that clients hold out.*Set data\.holdout to 0\.1"):
        run_with_holdouts([0, 0, 0, 0])


def test_contract_where_nobody_considered_can_judge_everyone_considered_stays() -> None:
    ear = Ear(torch.ones(3, 1, dtype=torch.float64), distance_to(torch.zeros(1)))
    kept = ear.hear(Greedy(on="client"), np.arange(2), holdout_sizes=np.array([0, 0, 5]))
    assert kept.clients.tolist() == [0, 1]
    assert not ear.models


def test_contract_a_public_set_is_what_no_client_holds_and_is_not_tested_on() -> None:
    plain, public = (
        Digits(clients=10, server_samples=50, server_from=source).build(Streams(0)) for source in ("clients", "test")
    )
    bare = Digits(clients=10).build(Streams(0))
    assert len(server_of(plain)) == len(server_of(public)) == 50
    assert plain.sizes.sum() == bare.sizes.sum() - 50
    assert np.array_equal(public.sizes, bare.sizes)  # the clients keep everything
    assert len(held_out_test_set(public)) == len(held_out_test_set(bare)) - 50
    tested, before = ({row.numpy().tobytes() for row in held_out_test_set(each).x} for each in (public, bare))
    theirs = {row.numpy().tobytes() for row in server_of(public).x}
    assert theirs <= before
    assert not theirs & tested
    again = Digits(clients=10, server_samples=50, server_from="test").build(Streams(0))
    other = Digits(clients=10, server_samples=50, server_from="test").build(Streams(1))
    assert torch.equal(server_of(public).x, server_of(again).x)
    assert not torch.equal(server_of(public).x, server_of(other).x)


def test_property_a_filter_on_a_public_set_leaves_wrong_labels_out() -> None:
    clean = Digits(clients=12, server_samples=60, server_from="test").build(Streams(0))
    pairs = []
    for client in range(12):
        x, y = train_of(clean).of(client)
        pairs.append((x, (y + 1) % 10 if client < 3 else y))
    spoilt = from_clients(pairs, test=clean.test, server=clean.server, num_classes=10)
    study = Study(
        data=spoilt,
        model=Softmax(),
        local=SGD(lr=0.1, batch_size=10, epochs=2),
        filtering=Greedy(every=1),
        aggregation=FedAvg(weighting="mean"),
        rounds=6,
    )
    asked = study.run(engine="sequential").loaded.clients
    late = asked[asked["round"] > 2]["client"]
    assert len(late) > 4
    assert (late < 3).mean() < 0.05  # a quarter of the clients


def test_error_a_public_set_must_leave_something_to_test_on() -> None:
    with pytest.raises(
        DataError, match=r"must leave the test set one sample; got 359 of 359\. Change data\.server_sam"
    ):
        Digits(clients=10, server_samples=359, server_from="test").build(Streams(0))
    with pytest.raises(ConfigError, match=r'server_from = "test" needs server_samples >= 1; got 0\. Set data\.server'):
        Digits(server_from="test")


@given(seed=st.integers(0, 20))
@settings(max_examples=10)
def test_property_running_sums_are_the_averages(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deltas, model = torch.tensor(rng.normal(size=(6, 3))), torch.tensor(rng.normal(size=3))
    inside: list[Any]
    sums, inside, outside = UpdateSums(model, deltas), [], list(range(6))
    for row in range(6):
        assert torch.allclose(sums.with_row(row), deltas[[*inside, row]].mean(0))
        if len(outside) > 1:
            assert torch.allclose(sums.without_row(row), deltas[[o for o in outside if o != row]].mean(0))
        if rng.random() < 0.5:
            sums.accept(row)
            inside.append(row)
        elif len(outside) > 1:
            sums.reject(row)
            outside.remove(row)
        assert torch.allclose(sums.models(sums.all())[0], model - deltas[outside].mean(0))


def test_error_no_samples_to_score_on() -> None:
    task = point_task([1.0, 2.0], 0.0)
    bare = Task(federation=replace(task.federation, server=None), module=task.module, loss=task.loss)
    for engine in (Sequential(), Vectorised("cpu", block=4)):
        with pytest.raises(ConfigError, match=r"needs samples at the server to score.*data\.server_samples"):
            run(bare, Plan(local=LOCAL, rounds=1, filtering=Greedy()), engine=engine)


@pytest.mark.parametrize(("bad", "text"), [({"every": 0}, "every >= 1; got 0"), ({"most": 0}, "most >= 1; got 0")])
def test_error_settings(bad: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Greedy(**bad)


def test_contract_kept_is_a_plain_value() -> None:
    assert Kept(clients=np.arange(2)).trained is None
