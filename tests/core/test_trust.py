"""Answers that cannot be trusted: an engine that lies in every way there is, and a model that stays sound."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engines import KINDS, Lying, at, of_training, spoil
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedVARP, Median
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.plan import Trust
from turnout.engine import Sequential, Vectorised
from turnout.engine.task import Question
from turnout.errors import ConfigError, UpdateError
from turnout.local import SGD
from turnout.local.effort import AdaComm
from turnout.protocols import Aggregation
from turnout.requests import Answer, Fit, Probe, Record, Score, Trained
from turnout.rows import finite_rows, is_finite
from turnout.selection import DivFL, PowerOfChoice, Uniform
from turnout.server import FedExP

NOBODY, NO = np.zeros(0, dtype=np.int64), np.zeros(0)
LOCAL = SGD(lr=0.1, batch_size=5, epochs=1)
ADAPTING = SGD(lr=0.1, batch_size=5, effort=AdaComm(start=4, every=1))


@pytest.mark.parametrize("kind", KINDS)
def test_contract_a_liar_is_left_out_as_if_it_had_never_come_and_is_on_record(kind: str) -> None:
    task = quadratic_task([1.0, 1.0, 1.0], [[1.0], [3.0], [9.0]], [1, 1, 1])
    alone = quadratic_task([1.0, 1.0], [[1.0], [3.0]], [1, 1])
    local = SGD(lr=0.1, steps=2, batches="full")
    final, records = run(task, Plan(local=local, rounds=3, aggregation=Median()), engine=Lying(spoil(2, kind)))
    expected, _ = run(alone, Plan(local=local, rounds=3, aggregation=Median()))
    assert torch.equal(final.model, expected.model)
    for record in records[1:]:
        assert list(record.rejected) == [2]
        assert KINDS[kind] in record.rejected[2]
        assert record.answered.tolist() == [0, 1]


def test_contract_answers_that_nobody_asked_for_are_noted_and_used_by_nobody() -> None:
    task = quadratic_task([1.0, 1.0, 1.0], [[1.0], [3.0], [9.0]], [1, 1, 1])

    def uninvited(request: Fit, answer: Trained) -> Trained:
        more: dict[str, Any] = {
            name: np.append(getattr(answer, name), getattr(answer, name)[:1]) for name in ("steps", "loss", "finite")
        }
        return replace(
            answer,
            **more,
            clients=np.append(answer.clients, 77),
            delta=torch.cat([present(answer.delta), present(answer.delta)[:1] * 1e6]),
            square_norms=None,
        )

    plan = Plan(local=SGD(lr=0.1, steps=2, batches="full"), rounds=2, aggregation=Median())
    final, records = run(task, plan, engine=Lying(of_training(uninvited)))
    expected, _ = run(task, plan)
    assert torch.equal(final.model, expected.model)
    assert records[1].events == ("client 77: answered without being asked",)
    assert records[1].rejected == {}


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda request, answer: None, "of type NoneType"),
        (lambda request, answer: "yes", "of type str"),
        (lambda request, answer: replace(answer, round=request.round - 1), "for round"),
        (lambda request, answer: replace(answer, reduced=answer.reduced[:-1]), "numbers of type torch.float64"),
        (lambda request, answer: replace(answer, reduced=answer.reduced.float()), "numbers of type torch.float64"),
        (lambda request, answer: replace(answer, reduced=answer.reduced * torch.nan), "is not finite"),
        (lambda request, answer: replace(answer, reduced=None), "leaves out what was asked for"),
        (lambda request, answer: replace(answer, loss=answer.loss[:-1]), "not 4 numbers each"),
        (lambda request, answer: replace(answer, loss=["low"] * 4), "not 4 numbers each"),
        (lambda request, answer: replace(answer, loss=answer.loss.astype(str)), "not 4 numbers each"),
        (lambda request, answer: replace(answer, steps=answer.steps / 2), "whose it is and how many steps"),
        (lambda request, answer: replace(answer, clients=answer.clients.astype(str)), "whose it is and how many"),
        (lambda request, answer: replace(answer, loss=answer.loss * np.nan), "the loss is not a number"),
        (lambda request, answer: Trained(clients=NOBODY, steps=NOBODY, loss=NO, finite=NO), "no answer came"),
    ],
)
def test_contract_an_answer_that_is_useless_as_a_whole_leaves_the_model_where_it_was(
    lie: Callable[..., Any], reason: str
) -> None:
    task = blob_task(4)
    plan = Plan(local=LOCAL, rounds=2, aggregation=FedAvg())
    final, records = run(task, plan, engine=Lying(of_training(lie)))
    assert torch.equal(final.model, task.layout.flatten(task.module))
    assert len(records[-1].rejected) == 4
    assert all(reason in why for why in records[-1].rejected.values())
    assert "nobody answered" in records[-1].events


def test_contract_a_sum_without_some_is_made_again_of_the_rest() -> None:
    task = blob_task(5)

    def not_finite(request: Fit, answer: Trained) -> Trained:
        place = at(answer, 3)
        return answer if place is None else replace(answer, finite=np.arange(len(answer.clients)) != place)

    _, records = run(task, Plan(local=LOCAL, rounds=2), engine=Lying(of_training(not_finite)))
    assert all(list(record.rejected) == [3] for record in records[1:])
    assert records[-1].coefficients.sum() == pytest.approx(1.0)


def test_contract_a_probe_that_is_no_number_gains_its_client_nothing() -> None:
    task = blob_task(6)

    def loud(request: Any, answer: Any) -> Any:
        return (
            replace(answer, loss=np.where(request.clients == 4, np.inf, answer.loss))
            if isinstance(request, Probe)
            else answer
        )

    plan = Plan(local=LOCAL, rounds=4, selection=PowerOfChoice(cohort_size=1, pool_size=6))
    _, records = run(task, plan, engine=Lying(loud))
    assert all(4 not in record.asked for record in records[1:])
    assert all("client 4: the loss is not a number" in record.events for record in records[1:])


def huge(client: int, size: float) -> Callable[..., Any]:
    def lie(request: Fit, answer: Trained) -> Trained:
        place = at(answer, client)
        if place is None:
            return answer
        rows = present(answer.delta).clone()
        rows[place] = size
        return replace(answer, delta=rows)

    return of_training(lie)


def test_golden_too_long_a_change_is_left_out_or_shortened() -> None:
    task = quadratic_task([1.0, 1.0], [[1.0], [1.0]], [1, 1])  # one full step of 0.1 from 0: both send −0.1
    local = SGD(lr=0.1, steps=1, batches="full")

    def after(trust: Trust) -> tuple[float, Record]:
        final, records = run(task, Plan(local=local, rounds=1, trust=trust), engine=Lying(huge(1, -8.0)))
        return final.model.item(), records[-1]

    model, record = after(Trust(max_norm=0.5))
    assert model == pytest.approx(0.1)
    assert record.rejected == {1: "the update norm exceeds trust.max_norm = 0.5"}
    model, record = after(Trust(policy="clip", max_norm=0.5))
    assert model == pytest.approx((0.1 + 0.5) / 2)
    assert record.rejected == {}
    assert record.metrics["clipped"] == 1.0


def test_error_a_run_that_is_to_stop_names_the_client_and_the_reason() -> None:
    with pytest.raises(UpdateError, match=r"round 1 cannot be used.*client 2: answered 2 times.*trust\.policy = \"rej"):
        run(
            blob_task(4),
            Plan(local=LOCAL, rounds=2, aggregation=Median(), trust=Trust(policy="stop")),
            engine=Lying(spoil(2, "twice")),
        )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"policy": "hope"}, r'policy to be one of "reject", "clip", "stop"; got "hope"\. Change trust\.policy'),
        ({"max_norm": 0.0}, r"max_norm > 0; got 0\.0\. Change trust\.max_norm"),
        ({"policy": "clip"}, r"needs a length to clip to\. Set trust\.max_norm"),
    ],
)
def test_error_trust_names_what_is_wrong_with_its_settings(made: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trust(**made)


@pytest.mark.parametrize("rule", [FedAvg(), FedVARP()])  # asks for a sum; for rows
@pytest.mark.parametrize("local", [LOCAL, ADAPTING])
def test_contract_a_loss_that_is_no_number_costs_its_client_the_round_and_nobody_else(
    local: SGD, rule: Aggregation
) -> None:
    plan = Plan(local=local, rounds=4, aggregation=rule)
    final, records = run(blob_task(5), plan, engine=Lying(spoil(3, "nan loss")))
    assert all(record.rejected == {3: "the loss is not a number"} for record in records[1:])
    assert all(record.answered.tolist() == [0, 1, 2, 4] for record in records[1:])
    assert np.isnan(final.last_losses[3])
    assert np.isfinite(np.delete(final.last_losses, 3)).all()


LIES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([*KINDS, "huge", "nan control"])), max_size=5)
LOCALS = st.sampled_from([LOCAL, replace(LOCAL, control="average"), ADAPTING])
RULES = st.sampled_from([Median(), FedVARP(), FedAvg()])


@settings(max_examples=40)
@given(LIES, LOCALS, RULES, st.sampled_from([Trust(), Trust(policy="clip", max_norm=1.0), Trust(max_norm=1.0)]))
def test_property_whatever_is_mixed_the_model_stays_finite_and_the_counts_add_up(
    lies: list[tuple[int, str]], local: SGD, rule: Aggregation, trust: Trust
) -> None:
    task = blob_task(6)
    changes = [huge(client, 1e300) if kind == "huge" else spoil(client, kind) for client, kind in lies]

    def rows_only(change: Callable[..., Any]) -> Callable[..., Any]:
        return lambda request, answer: answer if getattr(answer, "delta", None) is None else change(request, answer)

    engine = Lying(*map(rows_only, changes))
    server = FedExP() if isinstance(rule, FedAvg) else Plan(local=LOCAL, rounds=1).server
    plan = Plan(local=local, rounds=3, selection=Uniform(cohort_size=4), aggregation=rule, server=server, trust=trust)
    final, records = run(task, plan, engine=engine)
    assert torch.isfinite(final.model).all()
    assert torch.isfinite(final.local.get("control", final.model)).all()
    for record in records[1:]:
        asked, answered, rejected = set(record.asked), set(record.answered), set(record.rejected)
        assert answered | rejected == asked
        assert not answered & rejected
        assert set(record.asked[record.local_steps > 0]) == answered
        assert (record.coefficients[~np.isin(record.asked, record.answered)] == 0).all()


def test_contract_models_that_cannot_be_scored_are_the_worst_there_are() -> None:
    from turnout.coordinator.findings import Findings
    from turnout.coordinator.probe_checks import fitting
    from turnout.requests import Scored

    request = Score(round=1, models=torch.zeros(3, 2), buffers=None)
    fixed = fitting(request, Scored(loss=np.array([1.0, np.nan, 2.0]), samples=5), Findings())
    assert fixed.loss.tolist() == [1.0, 2.0, 2.0]
    found = Findings()
    assert fitting(request, None, found).loss.tolist() == [0.0, 0.0, 0.0]
    assert found.notes == ["the models could not be scored"]
    assert fitting(request, Scored(loss=["a", "b", "c"]), Findings()).loss.tolist() == [0.0, 0.0, 0.0]  # type: ignore[arg-type]


def test_golden_a_row_is_finite_or_not_whatever_its_sum_is() -> None:
    rows = torch.ones(5, 4)
    rows[1, 2], rows[2, 0], rows[2, 1] = torch.nan, torch.inf, -torch.inf
    rows[3] = 3e38  # finite, though its sum is not
    expected = [True, False, False, True, True]
    assert finite_rows([rows[:, :3], rows[:, 3:]]).tolist() == expected
    assert [is_finite(row) for row in rows] == expected


class OneNaN:
    """An engine whose second answer has one number in one of its fields that is none, or lacks the field."""

    name = "one-nan"

    def __init__(self, what: str, gone: bool = False) -> None:
        self.engine, self.what, self.gone, self.trained = Vectorised("cpu"), what, gone, 0

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [self.spoilt(a) if isinstance(a, Trained) else a for a in self.engine.answer(questions)]

    def spoilt(self, answer: Trained) -> Trained:
        self.trained += 1
        if self.trained != 2:
            return answer
        value = getattr(answer, self.what).clone()
        value.view(-1)[0] = torch.nan
        return replace(answer, **{self.what: None if self.gone else value})  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("what", ["next_rows", "next_sum"])
def test_contract_a_control_that_is_not_finite_spoils_one_round_at_most(what: str, gone: bool, rows: bool) -> None:
    local = SGD(lr=0.1, batch_size=7, epochs=1, control="average")
    plan = Plan(local=local, rounds=5, aggregation=FedVARP() if rows else FedAvg(), evaluate=Cadence(every=1))
    state, records = run(blob_task(5), plan, engine=OneNaN(what, gone))  # type: ignore[arg-type]
    assert [len(record.answered) for record in records[3:]] == [5, 5, 5]
    assert bool(torch.isfinite(state.local["shared"]).all())
    assert bool(torch.isfinite(state.world["store control"].take(np.arange(5))).all())
    if what == "next_rows" and not gone:
        assert records[2].rejected == {0: "the row to remember is not finite"}


@pytest.mark.parametrize("rule", [FedAvg(), FedVARP(), Median()])
def test_contract_rows_that_belong_to_a_graph_leave_it(rule: Aggregation) -> None:
    def tied(request: Fit, answer: Trained) -> Trained:
        names = ("reduced", "delta", "next_rows", "next_sum")
        held = {name: getattr(answer, name) for name in names if getattr(answer, name) is not None}
        return replace(answer, **{name: value.clone().requires_grad_() for name, value in held.items()})

    plan = Plan(local=replace(LOCAL, control="average"), rounds=3, aggregation=rule)
    final, records = run(blob_task(5), plan, engine=Lying(of_training(tied)))
    expected, _ = run(blob_task(5), plan)
    assert torch.equal(final.model, expected.model)
    assert not final.model.requires_grad
    assert all(record.rejected == {} and record.events == () for record in records)


def test_contract_gradients_that_belong_to_a_graph_leave_it() -> None:
    def tied(request: Any, answer: Any) -> Any:
        return replace(answer, gradient=answer.gradient.requires_grad_()) if isinstance(request, Probe) else answer

    plan = Plan(local=LOCAL, rounds=2, selection=DivFL(cohort_size=2))
    final, _ = run(blob_task(5), plan, engine=Lying(tied))
    expected, _ = run(blob_task(5), plan)
    assert torch.equal(final.model, expected.model)


class InPlace(Sequential):
    """An engine that trains the very model it was lent."""

    name = "in-place"

    def __init__(self, how: Callable[..., Any]) -> None:
        super().__init__()
        self.how = how

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        answers = super().answer(questions)
        for _, request in questions:
            if isinstance(request, Fit):
                self.how(request.model)
        return answers


@pytest.mark.parametrize(
    "how",
    [
        lambda model: model.add_(1e-9),
        lambda model: model[3:4].mul_(2.0),
        lambda model: model.numpy().__setitem__(0, 7.0),  # which torch does not notice
        lambda model: model.fill_(torch.nan),
        lambda model: model.copy_(model.flip(0)),  # the same numbers in another order
        lambda model: model[:2].neg_(),
    ],
)
def test_error_an_engine_that_changes_the_model_it_was_given_is_caught(how: Callable[..., Any]) -> None:
    with pytest.raises(UpdateError, match=r"'in-place' changed the model of a request in place.*train a copy"):
        run(blob_task(4), Plan(local=LOCAL, rounds=2), engine=InPlace(how))
