"""Requests, tasks and answers go to another process and come back the same."""

import multiprocessing
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.runs import run
from tests.support.same_values import same
from tests.support.tasks import blob_task
from turnout.coordinator import Plan
from turnout.engine import EngineWrapper, Sequential, Task
from turnout.fleet import Bernoulli, Deadline, Fleet
from turnout.local import SGD
from turnout.requests import Evaluate, Fit, Probe, Score
from turnout.row_table import RowTable
from turnout.selection import PowerOfChoice

LOCAL = SGD(lr=0.1, batch_size=4, steps=3)


class Recorder(EngineWrapper):
    """The real engine, with a note of every question and its answer."""

    def __init__(self) -> None:
        super().__init__(Sequential())
        self.seen: list[tuple[Any, bytes, Any]] = []

    def answer(self, questions: Any) -> Any:
        texts = [pickle.dumps(question) for question in questions]  # as they are now: tables change later
        answers = super().answer(questions)
        requests = [request for _, request in questions]
        self.seen += list(zip(requests, texts, [pickle.loads(pickle.dumps(a)) for a in answers], strict=True))
        return answers


def task_of() -> Task:
    task = blob_task(6)
    return replace(task, federation=replace(task.federation, server=task.federation.test))


def questions() -> list[tuple[Any, bytes, Any]]:
    """Return requests of every kind, some with what clients remember: each as a text, and its answer."""
    task, engine = task_of(), Recorder()
    plan = Plan(local=replace(LOCAL, control="average"), rounds=2, selection=PowerOfChoice(cohort_size=3, pool_size=5))
    run(task, plan, engine=engine)
    model = task.layout.flatten(task.module)
    engine.answer([(task, Score(round=1, models=torch.stack([model, model * 2]), buffers=None))])
    return engine.seen


def answer_there(text: bytes) -> bytes:
    """Answer in another process: everything is read from the text, nothing is shared."""
    task, request = pickle.loads(text)
    (answer,) = Sequential().answer([(task, request)])
    return pickle.dumps(answer)


def test_engine_every_kind_of_question_is_answered_the_same_in_another_process() -> None:
    seen = questions()
    assert {type(request) for request, _, _ in seen} == {Fit, Probe, Score, Evaluate}
    offsets = [request.offset for request, _, _ in seen if isinstance(request, Fit)]
    assert any(offset is not None and offset.table.seen.any() for offset in offsets)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answers = [pickle.loads(text) for text in pool.map(answer_there, [text for _, text, _ in seen])]
    for (_, _, before), after in zip(seen, answers, strict=True):
        assert same(before, after)


@pytest.mark.parametrize("budget", [1 << 30, 0], ids=["in RAM", "in a file"])
def test_contract_a_table_of_rows_is_the_same_after_a_journey(budget: int) -> None:
    table = RowTable(5, torch.zeros(7), budget)
    table.put(np.array([1, 3]), torch.randn(2, 7))
    back = pickle.loads(pickle.dumps(table))
    assert same(table, back)
    assert (back.file is None) == (table.file is None)


def test_contract_what_the_round_asks_of_a_world_can_be_sent_too() -> None:
    from turnout.coordinator import State, coordinate
    from turnout.protocols import Population
    from turnout.requests import Census, Collect, Dispatch, Present
    from turnout.streams import Streams

    task = task_of()
    fleet = Fleet(availability=Bernoulli(prob=0.9), clock=Deadline())
    plan = Plan(local=LOCAL, rounds=1, fleet=fleet)
    population = Population.of(task.federation.sizes)
    steps = coordinate(plan, population, State.start(task.layout.flatten(task.module), population), Streams(0))
    answer, asked = None, []
    while not isinstance(request := steps.send(answer), Collect):
        asked.append(request)
        answer = Present(members=None, up=np.arange(6)) if isinstance(request, Census) else None
    for each in (*asked, request):
        assert same(each, pickle.loads(pickle.dumps(each)))
    assert {Census, Dispatch, Evaluate} <= {type(each) for each in asked}
