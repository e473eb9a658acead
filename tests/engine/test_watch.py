"""Whoever waits for an engine hears what it does, and can stop it between two batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.engine_requests import answered
from tests.support.tasks import blob_task
from turnout.engine import Engine, Interrupted, Sequential, Task, Vectorised
from turnout.local import SGD
from turnout.requests import Evaluate, Fit, Probe, Score
from turnout.streams import Streams

ENGINES: dict[str, Callable[[], Engine]] = {
    "sequential": Sequential,
    "stacked": lambda: Vectorised("cpu", block=2, workers=1, threads=1),
    "stacked on two threads": lambda: Vectorised("cpu", block=2, workers=2, threads=1),
    "one by one on two threads": lambda: Vectorised("cpu", workers=2, threads=1, stack=False),
}


def task_of() -> Task:
    task = blob_task(8)
    return replace(task, federation=replace(task.federation, server=task.federation.test))


def asked(task: Task) -> dict[str, Fit | Probe | Score | Evaluate]:
    """Return one request of each kind."""
    clients, model = np.arange(8), task.layout.flatten(task.module)
    every: dict[str, Any] = {"round": 3, "streams": Streams(0), "model": model, "buffers": None, "clients": clients}
    local = SGD(lr=0.1, batch_size=4, steps=5)
    settings = {"lr": np.full(8, 0.1)}
    weights = np.full(8, 1 / 8)
    return {
        "train": Fit(
            **every, steps=np.full(8, 5), local=local, settings=settings, coefficients=weights, buffer_weights=weights
        ),
        "loss": Probe(**every, what="loss"),
        "gradient": Probe(**every, what="gradient"),
        "score": Score(round=3, models=torch.stack([model] * 3), buffers=None),
        "evaluate": Evaluate(round=3, model=model, buffers=None),
    }


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["train", "loss", "gradient", "score", "evaluate"])
def test_engine_any_work_is_given_up_when_asked_and_the_engine_goes_on_afterwards(name: str, kind: str) -> None:
    task, engine = task_of(), ENGINES[name]()
    request = asked(task)[kind]
    before = answered(ENGINES[name](), task, request)
    engine.watch.is_asked = lambda: True
    with pytest.raises(Interrupted):
        engine.answer([(task, request)])
    engine.watch.clear()
    after = answered(engine, task, request)
    for field in ("reduced", "gradient"):
        if getattr(before, field, None) is not None:
            assert torch.equal(getattr(after, field), getattr(before, field))
    if kind != "evaluate":
        assert np.array_equal(after.loss, before.loss) or kind == "gradient"


@pytest.mark.parametrize("name", ["sequential", "stacked"])
def test_engine_training_looks_before_every_batch(name: str) -> None:
    task, engine, looks = task_of(), ENGINES[name](), [0]

    def count() -> bool:
        looks[0] += 1
        return False

    engine.watch.is_asked = count
    engine.answer([(task, asked(task)["train"])])
    assert looks[0] == 5 * (8 if name == "sequential" else 4)  # steps, times clients or blocks


def test_engine_what_it_does_is_told() -> None:
    task, heard = task_of(), list[str]()
    for make in (Sequential, ENGINES["stacked"]):
        engine = make()
        engine.watch.tell = heard.append
        for request in asked(task).values():
            engine.answer([(task, request)])
    told = ["training", "asking clients", "asking clients", "scoring models", "evaluating"]
    assert heard == [f"round 3: {what}" for what in told] * 2


def test_engine_a_model_that_runs_start_from_together_is_evaluated_once() -> None:
    task, looks = task_of(), [0]
    engine = Vectorised("cpu", block=2, workers=1, threads=1)

    def count() -> bool:
        looks[0] += 1
        return False

    start = task.layout.flatten(task.module)
    other = start + 1.0
    alone = [answered(engine, task, Evaluate(round=0, model=m, buffers=None)).metrics for m in (start, other)]
    engine.watch.is_asked = count
    models = [start, start.clone(), other, start.clone()]
    answers: list[Any] = engine.answer([(task, Evaluate(round=0, model=model, buffers=None)) for model in models])
    assert looks[0] == 1  # a stack of two models in one pass
    for answer, expected in zip(answers, [alone[0], alone[0], alone[1], alone[0]], strict=True):
        assert answer.metrics == pytest.approx(expected)
    assert answers[0].metrics == answers[1].metrics == answers[3].metrics
    assert answers[0].metrics is not answers[1].metrics  # a run may add to its own
    gauge_calls: list[int] = []
    gauge = engine.prepared[task.kind].evaluator
    measure = gauge._metrics
    gauge._metrics = lambda test, requests, classes: (  # type: ignore[method-assign]
        gauge_calls.append(len(requests)) or measure(test, requests, classes)  # type: ignore[func-returns-value]
    )
    engine.answer([(task, Evaluate(round=0, model=model, buffers=None)) for model in models])
    engine.answer([(task, Evaluate(round=1, model=model, buffers=None)) for model in models])
    assert gauge_calls == [2, 4]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["train", "score", "evaluate"])
def test_engine_the_share_that_is_done_grows_from_nothing_and_covers_all_batches(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.engine.evaluation.CHUNK_VALUES", 40)  # so that there are several batches
    task, engine = task_of(), ENGINES[name]()
    shares: list[float] = []
    engine.watch.advance = shares.append
    engine.answer([(task, asked(task)[kind])])
    assert len(shares) > 1
    assert sorted(shares) == pytest.approx(np.arange(len(shares)) / len(shares))
