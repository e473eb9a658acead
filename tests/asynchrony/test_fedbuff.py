"""FedBuff: the synchronous limit, a case on the clock by hand, staleness weights, and resumption."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.engines import Lying, spoil
from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, Joint
from turnout.asynchrony import FedBuff
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan, State, check
from turnout.coordinator.saving import restored, saved
from turnout.engine import Engine, Sequential, Task, Vectorised
from turnout.errors import ConfigError
from turnout.filtering import DataSize
from turnout.fleet import Bernoulli, Complete, Deadline, Fleet, Fraction, Lognormal, Scheduled
from turnout.local import SGD, Adagrad
from turnout.local.effort import AdaComm
from turnout.protocols import Choice, Population, Timing, Work
from turnout.requests import Outcome
from turnout.selection import Uniform, Weighted
from turnout.streams import Streams
from turnout.study.driver import Run, drive
from turnout.world.simulation.in_flight import play

NEVER = Cadence(every=10**9)
ONE_BY_ONE = FedBuff(buffer_size=1, concurrency=1)


@dataclass(frozen=True)
class Pace:
    """A clock on which client i takes per_step[i] seconds a step."""

    per_step: tuple[float, ...]
    idle_seconds: float = 7.0

    def seconds(self, clients: Any, steps: Any, model_bytes: Any, view: Any) -> Any:
        return np.asarray(self.per_step)[clients] * steps

    def run(self, clients: Any, steps: Any, model_bytes: Any, view: Any) -> Any:
        return Timing(done=steps, late=np.zeros(len(steps), dtype=bool), round_seconds=0.0)


@dataclass(frozen=True)
class InOrder:
    """One client a round, by a list."""

    clients: tuple[int, ...]
    cohort_size: int | None = 1

    def choose(self, pool: Any, view: Any, ask: Any) -> Any:
        return Choice.of(np.array([self.clients[view.round - 1]]))


def plan(pace: Sequence[float], **settings: Any) -> Any:
    return Plan(
        local=SGD(lr=0.5, steps=1, batches="full"),
        rounds=4,
        fleet=Fleet(clock=Pace(tuple(pace))),
        aggregation=FedAvg(weighting="mean"),
        asynchrony=FedBuff(**settings),
        evaluate=NEVER,
    )


def test_identity_a_buffer_of_everyone_is_synchronous_fedavg(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(5)
    local = SGD(lr=0.1, batch_size=5, epochs=1)
    base = Plan(local=local, rounds=4, aggregation=FedAvg(weighting="mean"), evaluate=NEVER)
    waits, _ = run(task, base)
    buffered = replace(
        base,
        fleet=Fleet(clock=Pace((1.0, 5.0, 2.0, 9.0, 3.0))),
        asynchrony=FedBuff(buffer_size=5, concurrency=5, staleness="constant"),
    )
    final, records = run(task, buffered, engine=any_engine())
    assert torch.allclose(final.model, waits.model, rtol=0, atol=1e-12)
    assert all(len(r.answered) == 5 for r in records[1:])


def test_identity_draws_count_as_often_as_in_a_round_that_waits() -> None:
    task = blob_task(6)
    base = Plan(
        local=SGD(lr=0.1, batch_size=5, epochs=1),
        rounds=5,
        selection=Weighted(cohort_size=6),
        aggregation=FedAvg(weighting="mean"),
        evaluate=NEVER,
    )
    waits, before = run(task, base)
    fleet = Fleet(clock=Deadline(seconds_per_step=Lognormal(median=1.0, sigma=1.0)))
    some = replace(base, fleet=fleet, asynchrony=FedBuff(buffer_size=6, concurrency=6, staleness="constant"))
    final, after = run(task, some)
    assert torch.allclose(final.model, waits.model, rtol=0, atol=1e-12)
    assert any((r.multiplicity > 1).any() for r in before)
    for mine, theirs in zip(after, before, strict=True):
        assert np.array_equal(mine.multiplicity, theirs.multiplicity)
        assert np.allclose(mine.coefficients, theirs.coefficients)


def test_golden_the_shipped_clock_says_when_clients_come_back() -> None:
    # one float64: 1 s down at 8 B/s and 2 s up at 4 B/s; one step of 2 s and of 7 s: 5 s and 10 s
    task = quadratic_task([1.0, 1.0], [[4.0], [0.0]], [1, 1])
    clock = Deadline(seconds_per_step=(2.0, 7.0), down_bandwidth=8.0, up_bandwidth=4.0)
    some = replace(plan((1.0,), buffer_size=1, concurrency=2), rounds=3, fleet=Fleet(clock=clock))
    _, records = run(task, some)
    assert [r.answered.tolist() for r in records[1:]] == [[0], [0], [1]]  # at 5, 10 and 10: ties go to the lower id
    assert [r.costs.sim_seconds for r in records[1:]] == [5.0, 5.0, 0.0]
    assert [r.asked_steps.tolist() for r in records[1:]] == [[1, 1], [1], [1, 1]]
    assert [r.local_steps.tolist() for r in records[1:]] == [[1, 0], [1], [0, 1]]


PHONES = Deadline(
    seconds_per_step=Lognormal(median=1.0, sigma=1.0), down_bandwidth=Lognormal(median=1e4), up_bandwidth=2e3
)


def phones(prob: float = 0.7, **limits: Any) -> Plan:
    """A plan of clients that come and go, of unequal speed."""
    return Plan(
        local=SGD(lr=0.1, batch_size=5, epochs=1),
        rounds=10,
        fleet=Fleet(availability=Bernoulli(prob=prob), clock=PHONES),
        asynchrony=FedBuff(**{"buffer_size": 2, "concurrency": 4} | limits),
        evaluate=NEVER,
    )


def test_contract_the_seed_decides_everything() -> None:
    task = blob_task(8)
    first, again, other = (run(task, phones(), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first[0].model, again[0].model)
    for mine, theirs in zip(first[1], again[1], strict=True):
        assert np.array_equal(mine.asked, theirs.asked)
        assert np.array_equal(mine.answered, theirs.answered)
        assert mine.costs == theirs.costs
    assert [r.answered.tolist() for r in first[1]] != [r.answered.tolist() for r in other[1]]


@settings(max_examples=25)
@given(
    prob=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    buffer_size=st.integers(1, 4),
    more=st.integers(0, 4),
    seed=st.integers(0, 99),
    cohort=st.none() | st.integers(1, 8),
    work=st.sampled_from([Complete(), Fraction(fraction=0.3, spread=0.3)]),
)
def test_property_everyone_sent_off_comes_back_once_or_is_on_the_way(
    prob: float, buffer_size: int, more: int, seed: int, cohort: int | None, work: Work
) -> None:
    assume(cohort is None or cohort > buffer_size or more == 0)  # the rest is refused
    task = blob_task(8)
    base = phones(prob, buffer_size=buffer_size, concurrency=buffer_size + more)
    some = replace(base, selection=Uniform(cohort_size=cohort), fleet=replace(base.fleet, work=work))
    final, records = run(task, some, seed=seed)
    away: set[Any]
    size, away = 8 * task.layout.size, set()
    for record in records[1:]:
        asked, back = set(record.asked.tolist()), set(record.answered.tolist())
        sent = asked - away
        assert record.costs.bytes_down == size * len(sent)
        assert record.costs.bytes_up == size * len(back)
        assert sent <= set(record.up.tolist())  # only those who are up are sent off
        assert back <= away | sent
        assert len(back) <= buffer_size
        lost = set(record.asked[record.outcomes == Outcome.LOST].tolist())  # they never return, and may be asked again
        away = (away | sent) - back - lost
        assert set(record.asked[record.outcomes == Outcome.AT_WORK].tolist()) == away & asked
        assert len(away) <= buffer_size + more
        assert record.costs.sim_seconds >= 0
    assert away == set(final.jobs["clients"].tolist() if final.jobs else [])
    assert records[-1].finished


def test_golden_two_clients_on_the_clock_by_hand() -> None:
    # h = 1, η = ½: from x a client sends Δ = ½(x − e). e = (4, 0); paces 2 s and 3 s; a buffer of one, both at work.
    # t=2: client 0, sent off at x=0: Δ = −2, x = 2.   t=3: client 1, sent off at 0 too: Δ = 0, s = 1, x = 2.
    # t=4: client 0, sent off at t=2 with x=2: Δ = −1, s = 1: x = 2 + 1·2^{−½}
    task = quadratic_task([1.0, 1.0], [[4.0], [0.0]], [1, 1])
    final, records = run(task, replace(plan((2.0, 3.0), buffer_size=1, concurrency=2), rounds=3))
    assert [r.answered.tolist() for r in records[1:]] == [[0], [1], [0]]
    assert [r.costs.sim_seconds for r in records[1:]] == [2.0, 1.0, 1.0]
    assert [r.metrics["staleness"] for r in records[1:]] == [0.0, 1.0, 1.0]
    assert float(final.model) == pytest.approx(2 + 2**-0.5)


def test_golden_the_clock_played_by_hand() -> None:
    # two at work; the queue is sent off as places become free
    events = play([(5.0, 9)], np.array([1, 2, 3]), np.array([1.0, 10.0, 1.0]), 0.0, (3, 2))
    assert events.arrived == [(1.0, 1), (5.0, 9), (6.0, 3)]
    assert events.sent_at == [0.0, 1.0, 5.0]


def test_golden_the_place_of_the_answer_that_fills_the_buffer_waits_for_the_server_step() -> None:
    # client 1 is back at 1 s: with a buffer of one, client 2 is sent off in the next step, with its model
    events = play([], np.array([1, 2]), np.array([1.0, 10.0]), 0.0, (1, 1))
    assert (events.arrived, events.sent_at) == ([(1.0, 1)], [0.0])
    events = play([], np.array([1, 2, 3]), np.array([1.0, 2.0, 10.0]), 0.0, (2, 2))
    assert (events.arrived, events.sent_at) == ([(1.0, 1), (2.0, 2)], [0.0, 0.0, 1.0])


def test_identity_one_place_and_a_buffer_of_one_is_fedavg_one_client_after_another(
    any_engine: Callable[[], Engine],
) -> None:
    task = blob_task(5)
    local = SGD(lr=0.1, batch_size=5, epochs=1)
    base = Plan(local=local, rounds=6, evaluate=NEVER)
    some = replace(base, fleet=Fleet(clock=Pace((1.0, 5.0, 2.0, 9.0, 3.0))), asynchrony=ONE_BY_ONE)
    final, records = run(task, some, engine=any_engine())
    assert [r.metrics["staleness"] for r in records[1:]] == [0.0] * 6
    order = tuple(int(r.answered.item()) for r in records[1:])
    assert len(set(order)) > 1
    waits, _ = run(task, replace(base, selection=InOrder(order)))
    assert torch.allclose(final.model, waits.model, rtol=0, atol=1e-12)


def test_identity_second_rows_travel_with_their_answers() -> None:
    task = blob_task(5)
    base = Plan(local=Adagrad(lr=0.1, steps=(1, 3), correction="joint"), rounds=4, aggregation=Joint(), evaluate=NEVER)
    waits, _ = run(task, base)
    clock = Fleet(clock=Pace((1.0, 5.0, 2.0, 9.0, 3.0)))
    whole = FedBuff(buffer_size=5, concurrency=5, staleness="constant")
    final, _ = run(task, replace(base, fleet=clock, asynchrony=whole))
    assert torch.allclose(final.model, waits.model, rtol=0, atol=1e-12)


NEEDED: dict[str, Any] = {
    "cluster-fedvarp": {"num_clusters": 2},
    "private": {"clip_norm": 1.0, "noise_multiplier": 0.1, "cohort_size": 6},
}
REFUSED = {
    "private": "the accounting does not cover updates to older models",
    "ensemble-transfer": "these clients train one model",
}


@pytest.mark.parametrize("name", catalogue("aggregation"))
def test_contract_every_aggregation_goes_with_it_or_is_refused_with_the_reason(name: str) -> None:
    task = blob_task(6)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    rule = catalogue("aggregation")[name](**NEEDED.get(name, {}))
    local = Adagrad(lr=0.1, steps=2, correction="joint") if name == "joint" else SGD(lr=0.1, steps=2)
    some = replace(plan((1, 2, 3, 4, 5, 6), buffer_size=3, concurrency=5), rounds=8, local=local, aggregation=rule)
    if name in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[name]):
            run(task, some)
        return
    final, records = run(task, some)
    assert torch.isfinite(final.model).all()
    assert not torch.equal(final.model, task.layout.flatten(task.module))
    assert any(record.metrics["staleness"] > 0 for record in records[1:])
    assert all(record.rejected == {} for record in records)


def test_contract_an_answer_that_comes_in_late_is_rejected_for_its_own_reason() -> None:
    task = blob_task(6)
    some = replace(plan((1, 2, 9, 4, 5, 6), buffer_size=2, concurrency=6), rounds=8)
    _, records = run(task, some, engine=Lying(spoil(2, "absurd samples"), spoil(4, "nan loss")))
    told = [(client, reason) for record in records for client, reason in record.rejected.items()]
    assert (2, "reports -3 samples") in told
    assert (4, "the loss is not a number") in told
    assert {client for client, _ in told} == {2, 4}
    assert all(record.events == () for record in records)  # nothing is said of an answer before it comes in
    late = next(record for record in records if 2 in record.rejected)
    assert late.round > 1


def test_contract_the_reason_is_saved_with_an_answer_on_its_way() -> None:
    task, liar = blob_task(6), Lying(spoil(2, "absurd samples"))
    some = replace(plan((1, 2, 9, 4, 5, 6), buffer_size=2, concurrency=6), rounds=1)
    half, _ = run(task, some, engine=liar)
    tensors, rest = saved(half)
    back = restored(tensors, json.loads(json.dumps(rest)), half)
    assert back.world["in flight reasons"] == {"2": "reports -3 samples"}


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 4))
def test_property_never_more_at_work_than_allowed_and_time_never_runs_back(
    seconds: list[float], buffer_size: int, more: int
) -> None:
    limits = (buffer_size, buffer_size + more)
    events = play([], np.arange(len(seconds)), np.array(seconds), 0.0, limits)
    times = [t for t, _ in events.arrived]
    assert times == sorted(times)
    assert len(events.arrived) == min(buffer_size, len(seconds))
    for at in events.sent_at:
        busy = sum(s <= at < s + d for s, d in zip(events.sent_at, seconds, strict=False))
        assert busy <= limits[1]


def test_golden_staleness_weights() -> None:
    s = np.array([0, 1, 3])
    assert FedBuff().weight(s).tolist() == [1.0, 2**-0.5, 0.5]
    assert FedBuff(staleness="constant").weight(s).tolist() == [1.0, 1.0, 1.0]
    assert FedBuff(staleness="cutoff", cutoff=1).weight(s).tolist() == [1.0, 1.0, 0.0]
    assert FedBuff(staleness="cutoff", cutoff=1, beyond=0.25).weight(s).tolist() == [1.0, 1.0, 0.25]
    assert FedBuff(usual_staleness=3.0).weight(s).tolist() == [2.0, 2**0.5, 1.0]
    old = FedBuff(staleness="cutoff", cutoff=1, beyond=0.25, usual_staleness=3.0)
    assert old.weight(s).tolist() == [4.0, 4.0, 1.0]


def test_contract_the_journal_adds_up() -> None:
    task = blob_task(6)
    some = replace(plan((1, 2, 3, 4, 5, 6), buffer_size=2, concurrency=4), rounds=12, selection=Uniform(cohort_size=4))
    _, records = run(task, some)
    sent = answered = 0
    for record in records[1:]:
        size = 8 * task.layout.size
        sent += record.costs.bytes_down // size
        answered += record.costs.bytes_up // size
        assert np.isin(record.answered, record.asked).all()
        assert (record.coefficients[~np.isin(record.asked, record.answered)] == 0).all()
    assert answered == 24
    assert sent - answered <= 4


def test_contract_saved_half_way_and_restored_ends_the_same() -> None:
    task = blob_task(6)
    whole_plan = replace(plan((1, 2, 3, 4, 5, 6), buffer_size=2, concurrency=4), rounds=10)
    whole, _ = run(task, whole_plan)
    half, _ = run(task, replace(whole_plan, rounds=5))
    assert len(half.jobs["clients"])
    final, _ = run(task, whole_plan, state=again(half))
    assert torch.equal(final.model, whole.model)


def test_engine_the_engines_agree() -> None:
    task = blob_task(6)
    some = replace(plan((1, 2, 3, 4, 5, 6), buffer_size=2, concurrency=4), rounds=8)
    one, _ = run(task, some)
    other, _ = run(task, some, engine=Vectorised("cpu", block=3))
    assert torch.allclose(one.model, other.model, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"fleet": Fleet()}, r"FedBuff on asynchrony: it needs the time each client takes.*fleet\.clock"),
        ({"selection": Uniform(cohort_size=10)}, r"a cohort of 10 cannot fill a buffer.*cohort_size above"),
        ({"filtering": DataSize()}, "a filter needs a round that all clients share"),
        ({"local": SGD(lr=0.1, steps=1, control="average")}, r"Set local\.control"),
        ({"local": SGD(lr=0.1, effort=AdaComm(start=4, every=1))}, r"depends on the loss.*Set local\.steps"),
        ({"aggregation": FedAvg(weighting="ht")}, r"is in a buffer is not known\. Set aggregation\.weight"),
        ({"fleet": Fleet(clock=Deadline(deadline_seconds=5.0))}, r"no round for a deadline.*Drop deadline_seconds and"),
        (
            {"fleet": Fleet(clock=Deadline(over_selection=1.3))},
            r"no round for a deadline.*over_selection of fleet\.clock",
        ),
        ({"fleet": Fleet(clock=Pace((1.0,)), membership=Scheduled())}, r"arrivals, departures.*Leave them out"),
    ],
)
def test_error_what_does_not_go_with_it(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check(replace(plan((1.0,)), **change), Population.of(np.ones(3, dtype=np.int64)))


def test_error_running_statistics_are_refused() -> None:
    task, module = blob_task(4), torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).double()
    normed = Task(federation=task.federation, module=module, loss=task.loss)
    population = Population.of(task.federation.sizes)
    state = State.start(normed.layout.flatten(module), population, normed.layout.flatten_buffers(module))
    job = Run(index=0, task=normed, plan=phones(), state=state, streams=Streams(0), population=population)
    with pytest.raises(ConfigError, match=r"FedBuff cannot average running statistics.*GroupNorm in place of BatchNo"):
        drive([job], Sequential(), lambda batch: None)


def test_error_settings() -> None:
    with pytest.raises(ConfigError, match="buffer_size <= concurrency; got 5 and 2"):
        FedBuff(buffer_size=5, concurrency=2)
    with pytest.raises(ConfigError, match=r"exponent in \[0, 1\]"):
        FedBuff(exponent=2)
    with pytest.raises(ConfigError, match=r"beyond in \[0, 1\]; got 2\. Change asynchrony\.beyond"):
        FedBuff(beyond=2)
    with pytest.raises(ConfigError, match=r"usual_staleness <= cutoff, or beyond > 0; got 11\.0 > 10"):
        FedBuff(staleness="cutoff", usual_staleness=11.0)
