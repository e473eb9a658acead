"""The joint correction: T8's part at the server, cases worked by hand, and errors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from tests.support.aggregation_inputs import combined, facts, view
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedNova, Joint
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import ConfigError, UpdateError
from turnout.fleet import Fleet
from turnout.local import SGD, Adagrad
from turnout.protocols import Combined, Local, View
from turnout.rows import Facts
from turnout.server import SGD as ServerSGD

NEVER = Cadence(every=10**9)
NUMBERS = st.floats(-5, 5)
SCALES = st.floats(0.1, 20)


def joint(given_facts: Facts, delta: ArrayLike, preconditioner: ArrayLike, rule: Joint | None = None) -> Combined:
    """What Joint makes of changes with these accumulated preconditioners C_i."""
    delta, scale = np.asarray(delta, dtype=float), np.asarray(preconditioner, dtype=float)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
    here = view(np.ones(given_facts.num_clients), delta.shape[1])
    return combined(rule or Joint(), given_facts, delta * inverse, here, extra=torch.from_numpy(inverse))


def test_golden_two_clients_by_hand() -> None:
    # p = (¼, ¾), Δ = (8, 6), C = (2, 3): D = (4, 2); Σ wD = 1 + 1½ = 2½; Σ w/C = ⅛ + ¼ = ⅜; u = 20/3
    got = joint(facts([0, 1], weights=[0.25, 0.75]), [[8.0], [6.0]], [[2.0], [3.0]])
    assert got.direction.item() == pytest.approx(20 / 3, abs=1e-12)
    assert got.coefficients == pytest.approx([0.25, 0.75])


def test_golden_a_coordinate_nobody_moved_stays() -> None:
    got = joint(facts([0, 1]), [[1.0, 0.0], [3.0, 0.0]], [[2.0, 0.0], [2.0, 0.0]])
    assert got.direction.tolist() == [2.0, 0.0]


def test_golden_a_coordinate_one_client_left_alone_is_the_others() -> None:
    # C = (2, 0) in the second coordinate: D = (3, 0), 1/C = (½, 0), and u is the first client's change
    got = joint(facts([0, 1]), [[1.0, 6.0], [3.0, 0.0]], [[2.0, 2.0], [2.0, 0.0]])
    assert got.direction.tolist() == [2.0, 6.0]


@given(st.lists(st.tuples(SCALES, NUMBERS), min_size=1, max_size=5), SCALES, SCALES)
def test_identity_equal_preconditioners_are_fedavg(pairs: list[tuple[float, float]], one: float, two: float) -> None:
    p, moved = np.array(pairs).T
    some = facts(np.arange(len(p)), weights=p / p.sum())
    delta = np.stack([moved, -2 * moved], axis=1)
    got = joint(some, delta, np.tile([one, two], (len(p), 1)))
    assert np.allclose(got.direction.numpy(), FedAvg().coefficients(some) @ delta, rtol=1e-12, atol=1e-12)


@given(st.lists(st.tuples(SCALES, NUMBERS), min_size=1, max_size=5))
def test_identity_one_client_is_obeyed_whatever_its_preconditioner(pairs: list[tuple[float, float]]) -> None:
    scale, moved = np.array(pairs).T
    got = joint(facts([0]), moved[None], scale[None])
    assert np.allclose(got.direction.numpy(), moved, rtol=1e-12, atol=1e-12)


@given(st.lists(st.tuples(SCALES, st.integers(1, 30), NUMBERS), min_size=1, max_size=5))
def test_identity_plain_sgd_is_fednovas_direction_with_the_harmonic_mean(
    triples: list[tuple[float, int, float]],
) -> None:
    p, steps, moved = np.array(triples).T
    p = p / p.sum()
    some = facts(np.arange(len(p)), weights=p, steps=steps.astype(np.int64))
    got = joint(some, moved[:, None], steps[:, None])
    harmonic, arithmetic = 1 / (p / steps).sum(), p @ steps
    expected = FedNova().coefficients(some) @ moved * harmonic / arithmetic
    assert got.direction.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


class Unequal:
    """Each client its own number of completed steps: 1, 3, 7."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        return np.asarray((1, 3, 7))[clients]


H, E, SIZES = np.array([1.0, 2.0, 0.5]), np.array([[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]]), np.array([2, 3, 5])


def quadratic_plan(local: Local, rounds: int, **more: Any) -> Plan:
    """Three quadratics with 1, 3 and 7 steps."""
    return Plan(local=local, rounds=rounds, fleet=Fleet(work=Unequal()), evaluate=NEVER, **more)


def test_identity_adagrad_with_a_huge_accumulator_is_sgd_with_the_harmonic_mean(
    any_engine: Callable[[], Engine],
) -> None:
    # √v₀ = 10⁶ drowns the gradients: the solver is SGD at η/√v₀, and C_i = τ_i/√v₀
    p = SIZES / SIZES.sum()
    harmonic, arithmetic = 1 / (p / [1, 3, 7]).sum(), p @ [1, 3, 7]
    adagrad = Adagrad(lr=1e5, steps=7, batches="full", initial_accumulator=1e12, adaptivity=1e-9, correction="joint")
    mine = quadratic_plan(adagrad, 3, aggregation=Joint())
    sgd = SGD(lr=0.1, steps=7, batches="full")
    theirs = quadratic_plan(sgd, 3, aggregation=FedNova(), server=ServerSGD(lr=float(harmonic / arithmetic)))
    task = quadratic_task(H.tolist(), E.tolist(), SIZES.tolist())
    expected = run(task, theirs)[0].model
    assert torch.allclose(run(task, mine, engine=any_engine())[0].model, expected, rtol=1e-8, atol=1e-8)
    assert expected.abs().max() > 0.1


def test_convergence_uncorrected_adagrad_ends_at_the_median_and_the_correction_at_the_mean() -> None:
    # equal curvature, minima 0, 1, 10: x* is their mean; steps that are all alike in size find the middle one
    task = quadratic_task([1.0, 1.0, 1.0], [[0.0], [1.0], [10.0]], [1, 1, 1])

    def limit(correction: Any, aggregation: Any) -> Any:
        local = Adagrad(lr=0.01, steps=5, batches="full", initial_accumulator=0.01, correction=correction)
        plan = Plan(local=local, rounds=110, aggregation=aggregation, server=ServerSGD(lr=5.0), evaluate=NEVER)
        return run(task, plan)[0].model.item()

    assert limit("none", FedAvg()) == pytest.approx(1.0, abs=0.05)
    assert limit("joint", Joint()) == pytest.approx(11 / 3, abs=0.05)


def test_property_the_scale_of_the_weights_does_not_matter() -> None:
    some = facts([0, 1], weights=[0.1, 0.3], prob=[0.2, 0.2], total=10)
    delta, scale = [[1.0, 2.0], [-3.0, 0.5]], [[2.0, 1.0], [0.5, 4.0]]
    ratio, ht = joint(some, delta, scale), joint(some, delta, scale, Joint(weighting="ht"))
    assert torch.allclose(ratio.direction, ht.direction, rtol=0, atol=1e-12)


def test_error_rows_without_a_second_row_say_what_to_do() -> None:
    with pytest.raises(UpdateError, match=r'Joint needs a second row.*Set local\.correction = "joint"'):
        combined(Joint(), facts([0]), [1.0], view([1], 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected(SGD):
    """A solver that says how it corrects."""

    correction: str = "joint"


def test_error_a_solver_without_the_correction_is_refused() -> None:
    plain = Plan(local=SGD(lr=0.1, steps=1), rounds=1, aggregation=Joint())
    with pytest.raises(ConfigError, match=r'Joint needs .* correction = "joint"; SGD has correction = "none"'):
        run(blob_task(2), plain)
    local = Plan(local=Corrected(lr=0.1, steps=1, correction="local"), rounds=1, aggregation=Joint())
    assert 'Corrected has correction = "local"' in next(iter(problems(local))).message
    assert not list(problems(Plan(local=Corrected(lr=0.1, steps=1), rounds=1, aggregation=Joint())))
