"""FLTrust: the identities of trust, the server's own step through the engine, and a federation without a root set."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.robust_checks import ROOT, assert_the_root_set_decides
from tests.support.rows_by_hand import combined, direction, rooted_task, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from tests.support.tasks import quadratic_task
from turnout.aggregation import FLTrust
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine, Sequential
from turnout.engine.task import Question
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.requests import Answer, Fit

VALUES = st.floats(-10, 10).map(lambda v: round(v, 3))
ROWS = st.lists(VALUES, min_size=3, max_size=3)
matrices = st.integers(1, 7).flatmap(lambda n: st.lists(ROWS, min_size=n, max_size=n))
roots = ROWS.filter(lambda row: np.linalg.norm(row) > 0.01)


def test_identity_the_root_set_decides() -> None:
    assert_the_root_set_decides(FLTrust())


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6), roots)
def test_identity_everyone_along_the_root_is_the_servers_own_step(scales: list[float], root: list[float]) -> None:
    found = direction(FLTrust(), np.outer(scales, root), root=root)
    assert close(found, torch.tensor(root, dtype=torch.float64))


@given(matrices, roots, st.floats(1e-3, 1e3))
def test_identity_the_length_of_a_change_does_not_matter(
    delta: list[list[float]], root: list[float], scale: float
) -> None:
    longer = np.array(delta)
    longer[0] *= scale
    assert close(direction(FLTrust(), longer, root=root), direction(FLTrust(), delta, root=root))


@given(matrices, roots)
def test_property_the_direction_is_never_longer_than_the_servers_own(
    delta: list[list[float]], root: list[float]
) -> None:
    assert float(direction(FLTrust(), delta, root=root).norm()) <= np.linalg.norm(root) * (1 + 1e-12)


@given(matrices, roots)
def test_property_the_direction_never_opposes_the_servers_own(delta: list[list[float]], root: list[float]) -> None:
    assert float(direction(FLTrust(), delta, root=root) @ torch.tensor(root, dtype=torch.float64)) >= -1e-9


def test_identity_nobody_trusted_means_no_step() -> None:
    found = combined(FLTrust(), rows_of([[-1.0, -2.0, 2.0], [2.0, -1.0, 0.0]]), root=ROOT)
    assert torch.equal(found.direction, torch.zeros(3, dtype=torch.float64))
    assert found.coefficients.tolist() == [0, 0]
    assert found.metrics == {"trusted": 0, "root_norm": 3}


def test_contract_a_lone_client_at_a_right_angle_is_not_followed_on_the_word_of_a_rounding() -> None:
    assert direction(FLTrust(), [[0.0, 1.0]], root=[1.0, 1e-12]).tolist() == [0, 0]
    assert direction(FLTrust(), [[0.0, 1.0]], root=[1.0, 1e-6]).tolist() == pytest.approx([0, 1])


def test_golden_two_clients_and_draws() -> None:
    # root (2, 0). (3, 4): cos 0.6, rescaled (1.2, 1.6); (5, 0): cos 1, rescaled (2, 0)
    # u = (0.6·(1.2, 1.6) + (2, 0)) / 1.6 = (1.7, 0.6)
    once = combined(FLTrust(), rows_of([[3.0, 4.0], [5.0, 0.0]]), root=[2.0, 0.0])
    assert once.direction.tolist() == pytest.approx([1.7, 0.6])
    assert once.coefficients.tolist() == pytest.approx([0.6 / 1.6 * 2 / 5, 1 / 1.6 * 2 / 5])
    # the second drawn twice: (0.6·(1.2, 1.6) + 2·(2, 0)) / 2.6
    twice = direction(FLTrust(), [[3.0, 4.0], [5.0, 0.0]], root=[2.0, 0.0], multiplicity=[1, 2])
    assert twice.tolist() == pytest.approx([4.72 / 2.6, 0.96 / 2.6])


def test_contract_sizes_that_clients_claim_do_not_count() -> None:
    one = direction(FLTrust(), [[3.0, 4.0], [5.0, 0.0]], root=[2.0, 0.0], sizes=[1, 1])
    two = direction(FLTrust(), [[3.0, 4.0], [5.0, 0.0]], root=[2.0, 0.0], sizes=[1000, 1])
    assert torch.equal(one, two)


@pytest.mark.parametrize("root", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_contract_a_server_step_of_nothing_or_not_finite_moves_nothing(root: list[float]) -> None:
    found = combined(FLTrust(), rows_of([[1.0, 0.0], [0.0, 1.0]]), root=root)
    assert torch.equal(found.direction, torch.zeros(2, dtype=torch.float64))
    assert found.metrics == {"trusted": 0, "root_norm": 0}


def test_convergence_reaches_the_servers_own_minimum_whatever_the_majority_wants(
    any_engine: Callable[[], Engine],
) -> None:
    # in one dimension whoever pulls the server's way is heard at the server's length; one honest client is enough
    task = rooted_task([[2.1], [-50.0], [-60.0], [-70.0]], root=[2.0])
    local = SGD(lr=0.3, steps=3, batches="full")
    plan = Plan(local=local, rounds=40, aggregation=FLTrust(), evaluate=Cadence(every=10**9))
    final, records = run(task, plan, engine=any_engine())
    assert float(final.model) == pytest.approx(2.0, abs=1e-6)
    assert records[1].metrics["trusted"] == 1
    assert records[1].coefficients.tolist() == pytest.approx([2.0 / 2.1, 0, 0, 0])


class Spy(Sequential):
    """The real engine, with a note of what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += [request for _, request in questions if isinstance(request, Fit)]
        return super().answer(questions)


def test_engine_the_server_trains_once_a_round_by_the_same_procedure_and_no_client_pays_for_it() -> None:
    task, spy = rooted_task([[1.0], [2.0]], root=[2.0]), Spy()
    local = SGD(lr=0.3, steps=3, batches="full")
    _, records = run(task, Plan(local=local, rounds=2, aggregation=FLTrust()), engine=spy)
    assert [r.on_server for r in spy.asked] == [False, True, False, True]
    assert all(r.steps.tolist() == [3] and r.local is local for r in spy.asked if r.on_server)
    assert records[1].costs.bytes_down == records[1].costs.bytes_up == 2 * 8
    assert records[1].metrics["root_norm"] == pytest.approx(2 * (1 - 0.7**3))


def test_error_a_federation_without_a_root_set_says_what_to_set() -> None:
    task = quadratic_task([1.0], [[1.0]], [1])
    plan = Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=1, aggregation=FLTrust())
    with pytest.raises(ConfigError, match=r"FLTrust needs samples at the server.*Set data\.server_samples to 100"):
        run(task, replace(plan))
