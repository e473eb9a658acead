"""Blocks are cut by the work alone, and their answers put together are the answer to the whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.in_blocks import InBlocks
from tests.support.runs import run
from tests.support.same_values import same
from tests.support.tasks import blob_task
from turnout.coordinator import Plan
from turnout.data.federation import Held
from turnout.engine import Sequential
from turnout.engine.ray import blocks
from turnout.engine.ray.blocks import blocks_of
from turnout.engine.task import Question
from turnout.local import SGD
from turnout.requests import Evaluate, Fit, Probe, Score
from turnout.row_table import TableExcerpt
from turnout.selection import PowerOfChoice
from turnout.streams import Streams


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_WORK", 2e4)
    monkeypatch.setattr(blocks, "BLOCK_SAMPLES", 10)


def fit_of(clients: int, steps: int) -> Question:
    task = blob_task(clients)
    everyone = np.arange(clients)
    request = Fit(
        round=1, streams=Streams(0), model=task.layout.flatten(task.module), buffers=None, clients=everyone,
        steps=np.full(clients, steps),
        local=SGD(lr=0.1, batch_size=4, steps=steps), settings={"lr": np.full(clients, 0.1)},
        coefficients=np.full(clients, 1 / clients), buffer_weights=np.full(clients, 1 / clients),
    )  # fmt: skip
    return task, request


@given(clients=st.lists(st.integers(1, 40), min_size=1, max_size=4), steps=st.integers(1, 30))
def test_property_every_client_is_in_one_block_and_blocks_follow_the_order(clients: list[int], steps: int) -> None:
    questions = [fit_of(count, steps) for count in clients]
    pieces = [piece for block in blocks_of(questions) for piece in block]
    for at, count in enumerate(clients):
        ranges = [np.arange(count)[items] for question, items in pieces if question == at]
        assert np.concatenate(ranges).tolist() == list(range(count))


def test_golden_blocks_have_about_equal_work() -> None:
    numbers = blocks._block_numbers(np.full(20, 100.0), 1000)  # 20 * 100 * 2000 = 4e6: enough for 200, but of 20 items
    assert numbers.tolist() == list(range(20))
    assert blocks._block_numbers(np.full(4, 10.0), 1000).tolist() == [0, 1, 2, 3]
    assert blocks._block_numbers(np.array([30.0, 10.0, 10.0, 10.0]), 0).tolist() == [0, 1, 2, 2]
    assert blocks._block_numbers(np.zeros(3), 1000).tolist() == [0, 0, 0]
    assert [blocks._divisible(most) for most in (0, 1, 2, 3, 5, 6, 9, 20, 48, 63)] == [1, 1, 2, 3, 4, 6, 8, 16, 48, 48]


PLAIN = SGD(lr=0.1, batch_size=4, steps=3)
SOLVERS = {
    "plain": PLAIN,
    "control variates": replace(PLAIN, control="average"),
    "kept momentum": replace(PLAIN, momentum=0.5, momentum_reset="never"),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_engine_a_round_in_blocks_is_the_round(name: str) -> None:
    task, engine, local = blob_task(13), InBlocks(), SOLVERS[name]
    plan = Plan(local=local, rounds=3, selection=PowerOfChoice(cohort_size=9, pool_size=12))
    whole, records = run(task, plan)
    cut, again = run(task, plan, engine=engine)
    assert engine.most_blocks > 2
    torch.testing.assert_close(cut.model, whole.model, rtol=1e-12, atol=1e-14)
    for one, other in zip(records, again, strict=True):
        assert same(one.asked, other.asked)
        assert one.costs == other.costs
        np.testing.assert_allclose(one.losses, other.losses)


def test_engine_scores_and_probes_in_blocks_are_the_same() -> None:
    task = blob_task(13)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    model = task.layout.flatten(task.module)
    models = torch.stack([model * factor for factor in (1, 2, 3, 4, 5)])
    rest: dict[str, Any] = {"round": 1, "streams": Streams(0), "model": model, "buffers": None}
    questions: list[Question] = [
        (task, Score(round=1, models=models, buffers=None)),
        (task, Probe(clients=np.arange(1, 12), what="gradient", **rest)),
        (task, Probe(clients=np.arange(13), what="loss", batch_size=3, **rest)),
    ]
    engine = InBlocks()
    for one, other in zip(Sequential().answer(questions), engine.answer(questions), strict=True):
        assert type(one) is type(other)
        for name in ("loss", "gradient", "samples"):
            torch.testing.assert_close(getattr(one, name, None), getattr(other, name, None))
    assert engine.most_blocks > 6


def holdouts(clients: int, seed: int = 0) -> Held:
    """Hold-outs of 0 to 6 samples each, in another order than the clients'."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 7, clients)
    count = int(sizes.sum())
    x, y = torch.from_numpy(rng.normal(size=(count, 4))), torch.from_numpy(rng.integers(0, 3, count))
    return Held(x, y, np.concatenate([[0], np.cumsum(sizes)]), torch.from_numpy(rng.permutation(count)))


@pytest.mark.parametrize("has_test", [False, True])
@pytest.mark.parametrize("of_members", [False, True])
@pytest.mark.parametrize("per_client", [False, True])
def test_engine_an_evaluation_in_blocks_is_the_evaluation(
    has_test: bool, of_members: bool, per_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_WORK", 2e3)
    monkeypatch.setattr(blocks, "BLOCK_SAMPLES", 3)
    task = blob_task(13)
    held = replace(task.federation, holdout=holdouts(13), test=task.federation.test if has_test else None)
    task, model = replace(task, federation=held), task.layout.flatten(task.module)
    members = np.array([1, 2, 5, 7, 8, 12]) if of_members else None
    request = Evaluate(round=1, model=model, buffers=None, per_client=per_client, clients=members)
    questions: list[Question] = [(task, replace(request, model=model * factor)) for factor in (1, 2)]
    engine = InBlocks()
    whole: list[Any] = Sequential().answer(questions)
    for one, other in zip(whole, engine.answer(questions), strict=True):
        assert one.metrics.keys() == other.metrics.keys()
        for name, value in one.metrics.items():
            assert other.metrics[name] == pytest.approx(value, rel=1e-12)
        assert (other.client_loss is None) == (other.client_accuracy is None) == (not per_client)
        if per_client:
            np.testing.assert_allclose(other.client_loss, one.client_loss, rtol=1e-12)
            np.testing.assert_allclose(other.client_accuracy, one.client_accuracy, rtol=1e-12)
    assert engine.most_blocks > 3 or not (has_test or of_members or per_client)


def test_golden_an_evaluation_without_samples_has_no_metrics() -> None:
    task = blob_task(3)
    task = replace(task, federation=replace(task.federation, test=None))
    request = Evaluate(round=1, model=task.layout.flatten(task.module), buffers=None, per_client=True)
    (answer,) = InBlocks().answer([(task, request)])
    assert (answer.metrics, answer.client_loss, answer.client_accuracy) == ({}, None, None)


def test_contract_an_excerpt_has_rows_under_their_clients_ids() -> None:
    rows = torch.randn(3, 5)
    excerpt = TableExcerpt(np.array([2, 7, 8]), rows)
    assert torch.equal(excerpt.take(np.array([8, 2])), rows[[2, 0]])
    view = excerpt.run_of(np.array([7, 8]))
    assert view is not None
    assert torch.equal(view, rows[1:])
    assert excerpt.run_of(np.array([2, 8])) is None
    assert torch.equal(excerpt.columns(np.array([7]), 1, torch.empty(1, 3)), rows[1:2, 1:4])
    assert excerpt.spare(3).shape == (3, 5)
