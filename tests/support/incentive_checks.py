"""Checks of rules that weigh updates by losses; the tests of mutants break the rules and expect them to fail."""

import math

import numpy as np
import pytest

from tests.support.rows_by_hand import combined, rows_of
from tests.support.runs import run
from tests.support.several_runs import losses_by_hand, network
from turnout.aggregation import QFFL, Agnostic, Appeal, Tilted
from turnout.coordinator import Plan
from turnout.local import SGD


def assert_one_step_of_three_clients() -> None:
    """One step of three clients."""
    # z = (0, 1, −2): q = (1/4, 0.196612, 0.104994), Σ q + ε = 0.651606
    rows = rows_of([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = combined(Appeal(requirement=(1.0, 0.5, 3.0), eps=0.1), rows, losses=[1.0, 1.5, 1.0])
    q = np.array([0.25, 0.19661193324148185, 0.10499358540350662])
    assert found.coefficients.tolist() == pytest.approx((q / (q.sum() + 0.1)).tolist())
    assert found.direction.tolist() == pytest.approx([(q[0] + q[2]) / (q.sum() + 0.1), (q[1] + q[2]) / (q.sum() + 0.1)])
    assert found.metrics == {"cohort_appeal": pytest.approx(1 / 3)}


def assert_hopeless_clients_vanish_and_a_large_eps_stops() -> None:
    """Hopeless clients vanish and a large eps stops."""
    rows = rows_of([[1.0], [4.0]])
    assert combined(Appeal(requirement=(-1e9, 1.0), eps=0.0), rows).coefficients == pytest.approx([0, 1], abs=1e-100)
    assert abs(float(combined(Appeal(requirement=1.0, eps=1e12), rows).direction)) < 1e-10
    # without eps a cohort in which nobody can be won still steps; with it, it does not
    assert combined(Appeal(requirement=-50.0, eps=0.0), rows).coefficients.sum() == pytest.approx(1.0)
    assert combined(Appeal(requirement=-50.0), rows).coefficients.sum() < 1e-15


def assert_a_step_of_q_ffl() -> None:
    """A step of q ffl."""
    # F = (1, 2), q = 2, η = 0.1, Δ = (1, 0), (0, 2): F^q = (1, 4), h = 2 F ‖Δ/η‖² + F²/η = (210, 1640)
    found = combined(QFFL(power=2.0, weighting="mean"), rows_of([[1.0, 0.0], [0.0, 2.0]]), losses=[1.0, 2.0])
    assert found.direction.tolist() == pytest.approx([1 / 0.1 / 1850, 4 * 2 / 0.1 / 1850])
    assert found.coefficients.tolist() == pytest.approx([10 / 1850, 40 / 1850])


def assert_two_steps_of_agnostic() -> None:
    """Two steps of agnostic."""
    # λ = (1/4, 3/4), γ = ln 2, F = (2, 1): λ ∝ (1/4 · 4, 3/4 · 2) = (2, 3) / 5 after the step, which uses the old one
    rows, rule = rows_of([[5.0], [10.0]], sizes=[1, 3]), Agnostic(rate=math.log(2))
    first = combined(rule, rows, losses=[2.0, 1.0])
    assert first.coefficients.tolist() == [0.25, 0.75]
    assert first.memory["mixture"].tolist() == pytest.approx([0.4, 0.6])
    second = combined(rule, rows, first.memory, losses=[1.0, 1.0])
    assert second.coefficients.tolist() == pytest.approx([0.4, 0.6])
    assert second.memory["mixture"].tolist() == pytest.approx([0.4, 0.6])


def assert_the_largest_tilt_is_the_worst_client_and_the_smallest_the_best() -> None:
    """The largest tilt is the worst client and the smallest the best."""
    rows = rows_of([[1.0], [2.0], [3.0]])
    assert combined(Tilted(tilt=1e9), rows, losses=[1.0, 700.0, 3.0]).coefficients.tolist() == [0, 1, 0]
    assert combined(Tilted(tilt=-1e9), rows, losses=[1.0, 700.0, 3.0]).coefficients.tolist() == [1, 0, 0]


def assert_what_clients_require_is_measured_where_the_loss_is() -> None:
    """What clients require is measured where the loss is."""
    # who hardly trains alone requires F_k at the first model, so that all are equally near and have the same weight
    task = network()
    rule = Appeal(epochs=1, lr=1e-12, eps=0.0)
    final, records = run(task, Plan(local=SGD(lr=0.1, steps=1, batch_size=4), rounds=1, aggregation=rule))
    at_start = losses_by_hand(task, task.layout.flatten(task.module))
    assert final.aggregation["required"].tolist() == pytest.approx(at_start.tolist(), rel=1e-9)
    assert records[1].coefficients is not None
    assert records[1].coefficients.tolist() == pytest.approx([1 / 6] * 6, rel=1e-12)
