"""Blocks are cut by the work alone, and their answers put together are the answer to the whole."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import run
from tests.support.same_values import same
from tests.support.tasks import blob_task
from turnout.coordinator import Plan
from turnout.engine import EngineWrapper, Sequential
from turnout.engine.ray import blocks
from turnout.engine.ray.blocks import blocks_of, part
from turnout.engine.ray.merging import Merge
from turnout.engine.task import Question
from turnout.local import SGD
from turnout.requests import Fit, Probe, Score
from turnout.row_table import TableExcerpt
from turnout.selection import PowerOfChoice
from turnout.streams import Streams


class InBlocks(EngineWrapper):
    """The reference engine, asked block by block as workers are."""

    def __init__(self) -> None:
        super().__init__(Sequential())
        self.most_blocks = 0

    def answer(self, questions: Any) -> Any:
        merges = [Merge(request) for _, request in questions]
        cut = blocks_of(questions)
        self.most_blocks = max(self.most_blocks, len(cut))
        for block in cut:
            asked = [(questions[q][0], part(questions[q][1], items)) for q, items in block]
            for (q, items), answer in zip(block, super().answer(asked), strict=True):
                merges[q].add(items, answer)
        return [merge.answer() for merge in merges]


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


@pytest.mark.parametrize("control", ["none", "average"])
def test_engine_a_round_in_blocks_is_the_round(control: Literal["none", "average"]) -> None:
    task, engine = blob_task(13), InBlocks()
    local = replace(SGD(lr=0.1, batch_size=4, steps=3), control=control)
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
