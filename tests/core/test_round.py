"""The round: who is asked, what is recorded, and what happens when nobody comes or an answer is bad."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.engines import Spy
from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.tasks import blob_task, quadratic_task
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.asking import Asker
from turnout.errors import ConfigError
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.protocols import Choice, View
from turnout.requests import Evaluate, Fit
from turnout.selection import Uniform, Weighted

LOCAL = SGD(lr=0.1, batch_size=4, epochs=1)


def test_contract_a_round_in_which_nobody_is_up_is_recorded_and_the_run_goes_on() -> None:
    task = blob_task()
    fleet = Fleet(availability=Bernoulli(prob=0.0))
    final, records = run(task, Plan(local=LOCAL, rounds=3, fleet=fleet))
    assert [r.round for r in records] == [0, 1, 2, 3]
    assert all(r.events[0] == "nobody was up" and len(r.answered) == 0 for r in records[1:])
    assert [len(r.events) for r in records[1:]] == [1, 1, 2]
    assert records[-1].events[1] == "no client ever took part: no answer was used in any round"
    assert torch.equal(final.model, task.layout.flatten(task.module))
    assert records[-1].finished


def test_contract_a_shortage_is_recorded_and_those_who_are_up_are_asked() -> None:
    task = blob_task(10)
    plan = Plan(local=LOCAL, rounds=30, fleet=Fleet(availability=Bernoulli(prob=0.3)), selection=Uniform(cohort_size=5))
    _, records = run(task, plan)
    short = [r for r in records[1:] if 0 < len(r.up) < 5]
    assert short
    for record in short:
        assert np.array_equal(record.asked, record.up)
        assert record.events == ("fewer than 5 clients were asked: too few were available",)
    for record in records[1:]:
        assert np.isin(record.asked, record.up).all()


def test_contract_an_answer_that_is_not_finite_is_taken_out_and_the_rest_count_as_if_it_never_came() -> None:
    good = quadratic_task([1.0, 1.0], [[1.0], [3.0]], [1, 1])
    bad = quadratic_task([1.0, 1.0, 1.0], [[1.0], [3.0], [1e308]], [1, 1, 1])  # the third overflows
    plan = Plan(local=SGD(lr=10.0, steps=2, batches="full"), rounds=1, evaluate=Cadence(every=10**9))
    expected, _ = run(good, plan)
    final, records = run(bad, plan)
    assert records[-1].rejected == {2: "the update is not finite"}
    assert records[-1].coefficients.tolist() == [0.5, 0.5, 0.0]
    assert torch.equal(final.model, expected.model)


def test_contract_everyone_rejected_leaves_the_model_where_it_was() -> None:
    task = quadratic_task([1.0], [[1e308]], [1])
    final, records = run(task, Plan(local=SGD(lr=10.0, steps=2, batches="full"), rounds=2))
    assert torch.equal(final.model, torch.zeros(1, dtype=torch.float64))
    assert records[-1].events[0] == "nobody answered"
    assert records[-1].events[1].startswith("no client ever took part")


def test_contract_changing_the_selection_leaves_each_clients_batches_alone() -> None:
    task = blob_task(6)
    spies = []
    for selection in (Uniform(), Uniform(cohort_size=3), Weighted(cohort_size=3)):
        spies.append(Spy())
        run(task, Plan(local=LOCAL, rounds=1, selection=selection), engine=spies[-1])
    keys = []
    for spy in spies:
        (train,) = [r for r in spy.asked if isinstance(r, Fit)]
        keys.append(dict(zip(train.clients, train.streams.keys("batches", train.round, train.clients), strict=True)))
    for other in keys[1:]:
        assert other.items() <= keys[0].items()
        assert 0 < len(other) < 6


def test_contract_changing_the_aggregation_leaves_who_is_up_and_who_is_drawn_alone() -> None:
    from turnout.aggregation import FedAvg
    from turnout.server import SGD as ServerSGD

    task = blob_task(10)
    plan = Plan(local=LOCAL, rounds=5, fleet=Fleet(availability=Bernoulli(prob=0.6)), selection=Uniform(cohort_size=3))
    _, one = run(task, plan)
    _, two = run(task, replace(plan, aggregation=FedAvg(weighting="mean"), server=ServerSGD(lr=0.3)))
    for mine, theirs in zip(one, two, strict=True):
        assert np.array_equal(mine.up, theirs.up)
        assert np.array_equal(mine.asked, theirs.asked)
    assert not np.allclose(one[-1].losses, two[-1].losses)


def test_contract_the_state_saved_and_restored_half_way_ends_the_same() -> None:
    task = blob_task()
    plan = Plan(local=LOCAL, rounds=6, selection=Uniform(cohort_size=3))
    whole, _ = run(task, plan)
    half, _ = run(task, replace(plan, rounds=3))
    final, _ = run(task, plan, state=again(half))
    assert torch.equal(final.model, whole.model)
    assert np.array_equal(final.last_losses, whole.last_losses, equal_nan=True)


def test_contract_costs_are_counted_by_hand() -> None:
    task = quadratic_task([1.0, 1.0], [[1.0, 0.0], [3.0, 0.0]], [5, 7])
    _, records = run(task, Plan(local=SGD(lr=0.1, batch_size=4, epochs=2), rounds=1))
    costs = records[-1].costs
    assert costs.bytes_down == costs.bytes_up == 2 * 2 * 8  # two clients, two float64 parameters
    assert costs.gradient_evaluations == 2 * (5 + 7)
    assert costs.probe_evaluations == 0


class AskFirst:
    """A selection rule that probes losses and takes the worst client."""

    cohort_size = 1

    def choose(self, pool: Ids, view: View, ask: Asker) -> Generator[Any, Any, Any]:
        probed = yield ask.losses(pool)
        return Choice.of(pool[[int(np.argmax(probed.loss))]])


def test_contract_a_rule_may_ask_first_and_its_probes_are_counted() -> None:
    task = quadratic_task([1.0, 1.0, 1.0], [[1.0], [-3.0], [2.0]], [2, 3, 4])
    engine = Spy()
    _, records = run(
        task,
        Plan(local=SGD(lr=0.5, steps=1, batches="full"), rounds=2, selection=AskFirst()),  # type: ignore[arg-type]
        engine=engine,
    )
    # at 0 every loss is 0 and the first wins; x = 0.5 then costs (−.375, 1.625, −.875)
    assert [r.asked.tolist() for r in records[1:]] == [[0], [1]]
    assert records[-1].costs.probe_evaluations == 2 + 3 + 4
    assert records[-1].costs.bytes_down == (3 + 1) * 8


def test_contract_measurements_come_at_their_cadence_and_after_the_last_round() -> None:
    task = blob_task()
    engine = Spy()
    _, records = run(task, Plan(local=LOCAL, rounds=5, evaluate=Cadence(every=2)), engine=engine)
    assert [r.round for r in engine.asked if isinstance(r, Evaluate)] == [0, 2, 4, 5]
    assert ["loss" in r.metrics for r in records] == [True, False, True, False, True, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plan(local=LOCAL, rounds=0), r"rounds >= 1; got 0"),
        (lambda: Cadence(every=0), r"every >= 1.*got 0"),
        (lambda: SGD(lr=0.1, batch_size=4), r"epochs or steps, one of the two; got neither"),
        (lambda: SGD(lr=0.1, epochs=1, steps=1), r"epochs or steps, one of the two; got both"),
        (lambda: SGD(lr=0.1, epochs=(3, 2)), r"range of work that ascends; got \[3, 2\]"),
        (lambda: SGD(lr=0, epochs=1), r"lr > 0; got 0\. Change local\.lr"),
        (lambda: SGD(lr=1, epochs=1, momentum=1), r"momentum in \[0, 1\); got 1"),
        (lambda: SGD(lr=1, epochs=1, batch_size=0), r"batch_size >= 1; got 0"),
        (lambda: SGD(lr=1, epochs=1, clip_norm=0), r"clip_norm > 0; got 0"),
        (lambda: Uniform(cohort_size=0), r"cohort_size >= 1; got 0"),
        (lambda: Uniform(replacement=True), r"with replacement needs a cohort_size"),
        (lambda: Weighted(cohort_size=0), r"cohort_size >= 1; got 0"),
        (lambda: Bernoulli(prob=1.5), r"prob in \[0, 1\]; got 1\.5"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_error_a_cohort_larger_than_the_federation_says_the_most_there_can_be() -> None:
    with pytest.raises(ConfigError, match=r"got 9 > 8\. Set selection\.cohort_size to 8 or less"):
        run(blob_task(8), Plan(local=LOCAL, rounds=1, selection=Uniform(cohort_size=9)))


def test_error_probabilities_for_another_number_of_clients() -> None:
    with pytest.raises(ConfigError, match=r"one per client; got 2 for 8 clients"):
        run(blob_task(8), Plan(local=LOCAL, rounds=1, fleet=Fleet(availability=Bernoulli(prob=(0.1, 0.2)))))
