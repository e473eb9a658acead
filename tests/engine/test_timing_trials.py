"""What is measured is a piece of the work, of other clients each time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.engine_requests import answered, offset_of, request
from tests.support.optional import present
from tests.support.tasks import blob_task
from turnout.data.federation import Slab
from turnout.engine import Vectorised
from turnout.engine.task import samples_of
from turnout.engine.vectorised.autotune import Execution
from turnout.engine.vectorised.timing_trials import WHOLE_BYTES, Rehearsal
from turnout.local import SGD
from turnout.requests import Fit

LOCAL = SGD(lr=0.1, batch_size=4, steps=5, control="average")


def rehearsed(clients: int, runs: int = 1, row_bytes: int = WHOLE_BYTES) -> tuple[Rehearsal, list[Any], Fit, Slab]:
    """Return a rehearsal of requests with something of its own for each client, and the list of what it trains."""
    task, trained = blob_task(clients), []
    asked = request(task, np.arange(clients) / 10, LOCAL, offset=offset_of(task, 0))
    asked = replace(asked, settings={"lr": np.arange(clients) / 100}, steps=np.arange(clients) % 3 + 1)
    slab = samples_of(task, asked)
    rehearsal = Rehearsal(row_bytes, [asked] * runs, [slab] * runs, lambda *piece: trained.append(piece))
    return rehearsal, trained, asked, slab


def test_contract_each_piece_is_of_the_clients_that_come_next() -> None:
    rehearsal, trained, _, _ = rehearsed(7)
    for block, workers in ((2, 1), (2, 2), (1, 1), (1, 2), (9, 1), (3, 1)):
        rehearsal.seconds(Execution(True, block, workers, 1), 1)
    found = [requests[0].clients.tolist() for requests, _, _ in trained]
    assert found == [[0, 1], [2, 3, 4, 5], [6], [0, 1], [0, 1, 2, 3, 4, 5, 6], [0, 1, 2]]


def test_contract_a_client_keeps_what_is_its_own() -> None:
    rehearsal, trained, asked, slab = rehearsed(7)
    for _ in range(2):
        rehearsal.seconds(Execution(True, 3, 1, 1), 2)
    (piece,), (samples,), _ = trained[1]
    mine = slice(3, 6)
    assert piece.clients.tolist() == [3, 4, 5]
    assert piece.steps.tolist() == np.minimum(asked.steps[mine], 2).tolist()
    assert piece.settings["lr"].tolist() == asked.settings["lr"][mine].tolist()
    assert piece.coefficients.tolist() == present(asked.coefficients)[mine].tolist()
    assert piece.buffer_weights.tolist() == asked.buffer_weights[mine].tolist()
    assert piece.offset.scale.tolist() == present(present(asked.offset).scale)[mine].tolist()
    assert piece.offset.weights.tolist() == present(present(asked.offset).weights)[mine].tolist()
    assert samples.starts.tolist() == slab.starts[mine].tolist()
    assert samples.sizes.tolist() == slab.sizes[mine].tolist()


def test_contract_what_is_small_is_done_whole_and_what_is_not_by_the_first_run_alone() -> None:
    for row_bytes, runs, clients in ((1, 2, 7), (WHOLE_BYTES, 1, 2)):
        rehearsal, trained, _, _ = rehearsed(7, runs=2, row_bytes=row_bytes)
        rehearsal.seconds(Execution(True, 2, 1, 1), 1)
        (requests, slabs, _) = trained[0]
        assert [len(piece.clients) for piece in requests] == [clients] * runs
        assert [len(slab.sizes) for slab in slabs] == [clients] * runs


def test_golden_seconds_are_for_one_step_of_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsal, _, asked, _ = rehearsed(7)
    clock = iter([10.0, 16.0])
    monkeypatch.setattr("turnout.engine.vectorised.timing_trials.time.perf_counter", lambda: next(clock))
    assert rehearsal.seconds(Execution(True, 3, 1, 1), 2) == pytest.approx(6.0 / (1 + 2 + 2))
    assert asked.steps[:3].tolist() == [1, 2, 3]


def test_engine_to_be_measured_changes_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path))
    monkeypatch.setattr("turnout.engine.vectorised.timing_trials.WHOLE_BYTES", 0)
    task = blob_task(7)
    measured = answered(Vectorised("cpu"), task, request(task, None, LOCAL, offset=offset_of(task, 0)))
    fixed = answered(Vectorised("cpu", block=7), task, request(task, None, LOCAL, offset=offset_of(task, 0)))
    assert (tmp_path / "tuning.json").exists()
    for what in ("delta", "next_rows"):
        assert torch.allclose(getattr(measured, what), getattr(fixed, what), rtol=0, atol=1e-12)
