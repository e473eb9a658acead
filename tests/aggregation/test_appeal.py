"""Appeal (MaxFL): the gradient of its objective, the published readings that are none, and what clients require."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.incentive_checks import (
    assert_hopeless_clients_vanish_and_a_large_eps_stops,
    assert_one_step_of_three_clients,
    assert_what_clients_require_is_measured_where_the_loss_is,
)
from tests.support.rows_by_hand import combined, rows_of
from tests.support.runs import run
from tests.support.saved_states import again as saved_and_restored
from tests.support.server_steps import close
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import Appeal, FedAvg
from turnout.aggregation.appeal import appeal_weights
from turnout.attacks import SignFlip
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems, problems_with
from turnout.engine import Engine, Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Fleet, Fraction
from turnout.local import SGD, Adam
from turnout.protocols import Population
from turnout.requests import Fit, Probe
from turnout.selection import Uniform
from turnout.streams import Streams

NUMBERS = st.floats(-30, 30).map(lambda value: round(value, 3))
H, E = np.array([1.0, 2.0, 0.5, 1.5]), np.array([[1.0, 0.0], [0.0, 3.0], [-1.0, 0.5], [2.0, 2.0]])
NEEDED = np.array([-0.2, 0.4, 0.1, -1.0])


def logistic(z: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-z))


def losses_at(x: Any) -> Any:
    """Return F_k of the quadratics."""
    return 0.5 * H * (x @ x) - E @ x


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_golden_the_weights_are_the_gradient_of_the_objective(sharpness: float) -> None:
    x, step = np.array([0.3, -0.7]), 1e-5

    def objective(at: Any) -> float:
        return float(logistic(sharpness * (losses_at(at) - NEEDED)).mean())

    numerical = [(objective(x + step * axis) - objective(x - step * axis)) / (2 * step) for axis in np.eye(2)]
    gradients = H[:, None] * x - E
    weights = appeal_weights(losses_at(x), NEEDED, sharpness)
    assert close(sharpness * weights @ gradients / len(H), np.array(numerical), 1e-8)
    for wrong in MUTANTS.values():
        mutant = wrong(sharpness * (losses_at(x) - NEEDED))
        assert not close(sharpness * mutant @ gradients / len(H), np.array(numerical), 1e-3)


MUTANTS: dict[str, Callable[[Any], Any]] = {  # readings that are in public code
    "without the derivative": logistic,
    "at twice the distance": lambda z: logistic(2 * z) * (1 - logistic(2 * z)),
    "negative above zero": lambda z: 2 * logistic(2 * z) * (1 - 2 * logistic(2 * z)),
}


def test_golden_one_step_of_three_clients() -> None:
    assert_one_step_of_three_clients()


@given(NUMBERS, NUMBERS)
def test_property_weights_are_even_and_at_most_a_quarter(z: float, rho: float) -> None:
    above, below = appeal_weights(np.array([rho + z, rho - z]), np.array([rho, rho]))
    assert above == pytest.approx(below, rel=1e-9)
    assert 0 < above <= 0.25
    assert float(appeal_weights(np.array([rho]), np.array([rho]))[0]) == 0.25


@given(st.lists(NUMBERS, min_size=1, max_size=6), NUMBERS)
def test_identity_equal_distances_are_the_mean(required: list[float], z: float) -> None:
    delta = np.random.default_rng(1).normal(size=(len(required), 3))
    rule = Appeal(requirement=tuple(required), eps=0.0)
    found = combined(rule, rows_of(delta), losses=np.array(required) + z)
    assert close(found.direction, torch.from_numpy(delta.mean(0)), 1e-7)


def test_golden_the_share_that_is_served_counts_draws() -> None:
    rows = rows_of([[1.0], [4.0], [7.0]], multiplicity=[1, 2, 1])
    found = combined(Appeal(requirement=(0.0, 9.0, -4.0)), rows, losses=[0.0, 1.0, 2.0])
    assert found.metrics == {"cohort_appeal": 0.5}  # the second client, twice of four draws; equal does not serve


def test_identity_no_sharpness_is_the_mean_and_counts_draws() -> None:
    rows = rows_of([[1.0], [4.0], [7.0]], multiplicity=[1, 2, 1], sizes=[1, 5, 9])
    found = combined(Appeal(requirement=(0.0, 9.0, -4.0), eps=0.0, sharpness=0.0), rows)
    assert (
        found.coefficients.tolist() == FedAvg(weighting="mean").coefficients(rows.facts).tolist() == [0.25, 0.5, 0.25]
    )
    ratio = combined(Appeal(requirement=1.0, eps=0.0, weighting="ratio"), rows).coefficients
    assert close(ratio, FedAvg(weighting="ratio").coefficients(rows.facts))


def test_identity_hopeless_clients_vanish_and_a_large_eps_stops() -> None:
    assert_hopeless_clients_vanish_and_a_large_eps_stops()


def two_groups() -> Any:
    """Return two groups of clients, at (1, 0) and at (0, 6): F = ½‖x − a‖² − ½‖a‖²."""
    return quadratic_task([1.0] * 4, [[1.0, 0.0], [1.0, 0.0], [0.0, 6.0], [0.0, 6.0]], [1] * 4)


def test_convergence_a_step_moves_to_the_group_that_is_nearly_won() -> None:
    required = (-0.4, -0.4, -17.9, -17.9)  # each reached only near the group's own minimum
    plan = Plan(local=SGD(lr=0.5, steps=1, batches="full"), rounds=1, aggregation=Appeal(requirement=required))
    moved, _ = run(two_groups(), plan)
    plain, _ = run(two_groups(), replace(plan, aggregation=FedAvg()))
    assert moved.model[0] > 0.45
    assert moved.model[1] < 0.01
    assert plain.model.tolist() == [0.25, 1.5]


def alone_by_hand(client: int, lr: float, steps: int) -> float:
    """Return F_k after gradient descent from zero on the client's own quadratic."""
    x = E[client] / H[client] * (1.0 - (1.0 - lr * H[client]) ** steps)
    return float(losses_at(x)[client])


def quadratics() -> Any:
    return quadratic_task(H.tolist(), E.tolist(), [1, 2, 3, 4])


@pytest.mark.parametrize("engine", [Sequential, Vectorised])
def test_golden_alone_is_the_loss_of_training_alone_from_the_first_model(engine: Callable[[], Engine]) -> None:
    rule = Appeal(epochs=3, eps=0.0)
    plan = Plan(
        local=SGD(lr=0.1, steps=1, batches="full"), rounds=4, aggregation=rule, selection=Uniform(cohort_size=2)
    )
    final, records = run(quadratics(), plan, engine=engine())
    heard = np.unique(np.concatenate([record.asked for record in records]))
    assert final.aggregation["is_known"].nonzero()[0].tolist() == heard.tolist()
    expected = [alone_by_hand(client, 0.1, 3) for client in heard]
    assert final.aggregation["required"][heard].tolist() == pytest.approx(expected, rel=1e-12)
    own, _ = run(quadratics(), replace(plan, aggregation=Appeal(epochs=3, lr=0.4)), engine=engine())
    expected = [alone_by_hand(client, 0.4, 3) for client in heard]
    assert own.aggregation["required"][heard].tolist() == pytest.approx(expected, rel=1e-12)


def test_identity_what_clients_require_is_measured_where_the_loss_is() -> None:
    assert_what_clients_require_is_measured_where_the_loss_is()


def test_golden_the_bill_has_losses_and_training_alone() -> None:
    sizes = [1, 2, 3, 4]
    plan = Plan(local=SGD(lr=0.1, epochs=1, batch_size=2), rounds=2, aggregation=Appeal(epochs=3))
    _, records = run(quadratics(), plan)
    first, second = records[1].costs, records[2].costs
    assert second.gradient_evaluations == sum(sizes)
    assert first.gradient_evaluations == sum(sizes) + 3 * sum(sizes)
    assert second.probe_evaluations == sum(sizes)  # F_k(x)
    assert first.probe_evaluations == 2 * sum(sizes)  # and the models trained alone
    model = 2 * 8
    assert second.bytes_down == 2 * 4 * model  # for training, and for the loss
    assert first.bytes_down == 3 * 4 * model
    assert first.bytes_up == second.bytes_up == 4 * model


def test_engine_alone_agrees_on_every_engine(any_engine: Callable[[], Engine]) -> None:
    task = blob_task()
    plan = Plan(
        local=SGD(lr=0.1, epochs=1, batch_size=4),
        rounds=3,
        aggregation=Appeal(epochs=2),
        selection=Uniform(cohort_size=3),
    )
    final, _ = run(task, plan, engine=any_engine())
    expected, _ = run(task, plan)
    assert close(final.model, expected.model)
    assert close(final.aggregation["required"], expected.aggregation["required"])


def test_contract_what_clients_require_does_not_depend_on_when_they_are_asked() -> None:
    task = blob_task()
    local = SGD(lr=0.1, epochs=1, batch_size=4)
    everyone, _ = run(task, Plan(local=local, rounds=1, aggregation=Appeal(epochs=2)))
    some, _ = run(task, Plan(local=local, rounds=6, aggregation=Appeal(epochs=2), selection=Uniform(cohort_size=2)))
    known = some.aggregation["is_known"]
    assert known.sum() > 2
    assert close(some.aggregation["required"][known], everyone.aggregation["required"][known])


def test_contract_a_run_resumes_exactly() -> None:
    task = blob_task()
    plan = Plan(
        local=SGD(lr=0.1, epochs=1, batch_size=4),
        rounds=6,
        aggregation=Appeal(epochs=2),
        selection=Uniform(cohort_size=2),
    )
    whole, records = run(task, plan)
    for record in records[1:-1]:
        again, _ = run(task, plan, state=saved_and_restored(record.state))
        assert torch.equal(again.model, whole.model)
        assert np.array_equal(again.aggregation["required"], whole.aggregation["required"])


def test_contract_a_client_that_diverges_alone_keeps_the_first_model() -> None:
    plan = Plan(local=SGD(lr=0.1, steps=1, batches="full"), rounds=1, aggregation=Appeal(epochs=2000, lr=1e3))
    final, _ = run(quadratics(), plan)
    assert final.aggregation["required"].tolist() == [0.0] * 4  # F_k(0)


def test_engine_a_probe_may_have_one_model_per_client() -> None:
    task, models = quadratics(), torch.arange(8, dtype=torch.float64).view(4, 2)
    probe = Probe(round=1, streams=Streams(0), model=models[0], buffers=None, clients=np.array([3, 1]), what="loss",
                  models=models[:2])  # fmt: skip
    for engine in (Sequential(), Vectorised()):
        (answer,) = engine.answer([(task, probe)])
        expected = [losses_at(models[0].numpy())[3], losses_at(models[1].numpy())[1]]
        assert answer.loss.tolist() == pytest.approx(expected)  # type: ignore[union-attr]
        assert answer.samples == 4 + 2  # type: ignore[union-attr]


def test_error_a_list_of_the_wrong_length_names_the_setting() -> None:
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, aggregation=Appeal(requirement=(1.0, 2.0)))
    (problem,) = problems_with(plan, Population.of(np.array([1, 1, 1])))
    assert "Appeal needs one requirement for all clients, or one per client; got 2 for 3 clients." in problem.message
    assert problem.setting == "aggregation.requirement"


def test_error_training_alone_needs_updates_that_lead_to_the_clients_model() -> None:
    local = Adam(lr=0.1, steps=1, correction="local")
    (problem,) = problems(Plan(local=local, rounds=1, aggregation=Appeal()))
    assert "do not lead to the client's own model. Set aggregation.lr" in problem.message
    assert list(problems(Plan(local=local, rounds=1, aggregation=Appeal(lr=0.1)))) == []


def test_error_epochs_without_training_alone_have_no_effect() -> None:
    with pytest.raises(ConfigError, match=r'Appeal uses epochs only with requirement = "alone"'):
        Appeal(requirement=1.0, epochs=3)


def test_contract_attackers_require_what_their_honest_training_gives() -> None:
    local = SGD(lr=0.1, epochs=1, batch_size=4)
    plan = Plan(local=local, rounds=1, aggregation=Appeal(epochs=2), evaluate=Cadence())
    honest, _ = run(blob_task(), plan)
    attacked, _ = run(blob_task(), replace(plan, attack=SignFlip(fraction=0.5, scale=9.0)))
    assert not torch.equal(attacked.model, honest.model)
    assert np.array_equal(attacked.aggregation["required"], honest.aggregation["required"])


def test_contract_training_alone_is_not_cut_short_by_the_fleet() -> None:
    local = SGD(lr=0.1, steps=8, batches="full")
    plan = Plan(local=local, rounds=1, aggregation=Appeal(epochs=4), fleet=Fleet(work=Fraction(fraction=0.5)))
    seen: list[Fit] = []

    class Watching(Sequential):
        def answer(self, questions: Any) -> Any:
            seen.extend(request for _, request in questions if isinstance(request, Fit))
            return super().answer(questions)

    run(quadratics(), plan, engine=Watching())
    assert [fit.steps.tolist() for fit in seen if fit.purpose == "alone"] == [[4, 4, 4, 4]]
