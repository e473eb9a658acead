"""FedExP: the identities of the rate, its weights and ε, what is measured, and an over-parameterised fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.support.optional import present
from tests.support.runs import run
from tests.support.saved_states import again
from tests.support.server_checks import (
    assert_orthogonal_changes_are_stretched_by_half_their_number,
    assert_rate_is_at_least_one,
    assert_the_mean_of_two_iterates_is_measured,
    rate,
)
from tests.support.server_steps import close, step_of
from tests.support.tasks import blob_task, train_of
from turnout import losses
from turnout.aggregation import FedAvg, Median
from turnout.array_types import Ids
from turnout.assist import Safari
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.data.federation import Samples, from_clients
from turnout.engine import Engine, Sequential, Task
from turnout.engine.task import Question
from turnout.errors import ConfigError, UpdateError
from turnout.fleet import Fleet
from turnout.local import SGD
from turnout.protocols import Population, View
from turnout.requests import Answer, Evaluate
from turnout.server import SGD as ServerSGD
from turnout.server import FedExP
from turnout.server.fedexp import extrapolation
from turnout.streams import Streams
from turnout.study.driver import Run, drive

matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=n, max_size=n)
)


def test_golden_the_mean_of_two_iterates_is_measured() -> None:
    assert_the_mean_of_two_iterates_is_measured(FedExP(eps=0))


def test_identity_orthogonal_changes_are_stretched_by_half_their_number() -> None:
    assert_orthogonal_changes_are_stretched_by_half_their_number(FedExP(eps=0))


def test_identity_the_rate_is_at_least_one() -> None:
    assert_rate_is_at_least_one(FedExP(eps=0))


@given(matrices, st.floats(0, 1))
def test_property_the_rate_is_at_least_one(delta: list[list[float]], eps: float) -> None:
    assert rate(FedExP(eps=eps), delta) >= 1


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.integers(1, 6), st.floats(0, 1))
def test_identity_equal_changes_and_a_single_client_have_a_rate_of_one(
    row: list[float], clients: int, eps: float
) -> None:
    assert rate(FedExP(eps=eps), [row] * clients) == 1


@given(matrices, st.floats(1e-2, 1e2))
def test_identity_the_scale_of_the_changes_does_not_matter_without_eps(delta: list[list[float]], scale: float) -> None:
    mean = np.mean(delta, axis=0)
    if np.abs(mean).max() < 0.1:  # changes that cancel leave nothing but rounding
        return
    rule = FedExP(eps=0)
    assert rate(rule, scale * np.array(delta)) == pytest.approx(rate(rule, delta), rel=1e-12)


def test_identity_a_huge_eps_is_server_sgd() -> None:
    step, model = step_of(np.eye(4)), torch.zeros(4, dtype=torch.float64)
    huge, plain = FedExP(eps=1e12).advance(model, step, {}), ServerSGD().advance(model, step, {})
    assert torch.equal(huge.model, plain.model)


def test_golden_two_clients_with_weights() -> None:
    # w = (¼, ¾), Δ = (4, 0), (0, 8): u = (1, 6), ‖u‖² = 37, Σ w‖Δ‖² = 4 + 48 = 52; ε = ½: 52/75 → 1
    assert rate(FedExP(eps=0.5), [[4.0, 0.0], [0.0, 8.0]], coefficients=[0.25, 0.75]) == 1
    # w = (½, ½), Δ = (4, 0), (−2, 2): u = (1, 1), ‖u‖² = 2, Σ w‖Δ‖² = 8 + 4 = 12; ε = 1: 12/6 = 2
    step = step_of([[4.0, 0.0], [-2.0, 2.0]])
    moved = FedExP(eps=1.0).advance(torch.zeros(2, dtype=torch.float64), step, {})
    assert moved.metrics == {"server_lr": 2.0}
    assert moved.model.tolist() == [-2.0, -2.0]
    assert present(moved.evaluate).tolist() == [-1.0, -1.0]


def test_golden_eps_times_the_number_of_draws() -> None:
    # as above with ε = ½ and M = 4 draws (3 + 1): 12 / (2·(2 + 4·½)) = 3/2; unscaled 12 / (2·2½) = 2.4
    delta, draws = [[4.0, 0.0], [-2.0, 2.0]], {"multiplicity": [3, 1]}
    assert rate(FedExP(eps=0.5, eps_scale="participants"), delta, **draws) == pytest.approx(1.5)
    assert rate(FedExP(eps=0.5), delta, **draws) == pytest.approx(2.4)


def test_golden_eps_decays_before_every_step() -> None:
    # ε = 4, halved before each step: 2, then 1: 12/(2·4) = 1½, then 12/(2·3) = 2
    memory: dict[str, Any]
    rule, step, memory = FedExP(eps=4.0, eps_decay=0.5), step_of([[4.0, 0.0], [-2.0, 2.0]]), {}
    found = []
    for _ in range(2):
        moved = rule.advance(torch.zeros(2, dtype=torch.float64), step, memory)
        memory = moved.memory
        found.append(moved.metrics["server_lr"])
    assert found == [1.5, 2.0]


def test_golden_weights_that_do_not_sum_to_one_are_taken_as_they_are() -> None:
    # identical Δ = (2,) with w = (⅛, ⅛): u = ½, Σ w‖Δ‖² = 1, ‖u‖² = ¼: η_g = 1/(2·¼) = 2
    assert rate(FedExP(eps=0), [[2.0], [2.0]], coefficients=[0.125, 0.125]) == pytest.approx(2.0)


@given(matrices)
def test_property_no_client_is_taken_further_from_a_point_than_it_came(delta: list[list[float]]) -> None:
    # exact projections on a common point x*: ⟨Δ_i, x − x*⟩ ≥ ½‖Δ_i‖²; then η_g never takes x further from it
    rows = np.array(delta)
    start = np.array([1.0, -2.0, 3.0])  # x − x*
    spread = (rows**2).sum(1)
    rows = np.where((spread > 1e-12)[:, None], rows * ((rows @ start) / np.maximum(spread, 1e-12))[:, None], 0.0)
    step = step_of(rows)
    moved = FedExP(eps=1e-9).advance(torch.from_numpy(start), step, {})
    assert float(moved.model.norm()) <= np.linalg.norm(start) * (1 + 1e-9)


def one_equation_each(
    clients: int,
    sizes: tuple[int, int, int, int] | None = None,
    targets: tuple[float, float, float, float] | None = None,
) -> Task:
    """Client i knows the i-th coordinate of x* alone: an over-parameterised fit with orthogonal changes."""
    eye = torch.eye(clients, dtype=torch.float64)
    pairs = [
        (eye[i : i + 1].repeat(n, 1), torch.full((n, 1), target, dtype=torch.float64))
        for i, (n, target) in enumerate(zip(sizes or [1] * clients, targets or [1.0] * clients, strict=True))
    ]
    module = nn.Linear(clients, 1, bias=False).double()
    nn.init.zeros_(module.weight)
    return Task(federation=from_clients(pairs), module=module, loss=losses.squared_error)


def test_convergence_follows_the_closed_form_of_an_over_parameterised_fit(any_engine: Callable[[], Engine]) -> None:
    clients, rounds = 6, 8
    task, local = one_equation_each(clients), SGD(lr=0.1, steps=3, batches="full")
    plan = Plan(local=local, rounds=rounds, evaluate=Cadence(every=10**9))
    averaged, _ = run(task, plan, engine=any_engine())
    stretched, records = run(task, replace(plan, server=FedExP(eps=0)), engine=any_engine())
    once, _ = run(task, replace(plan, rounds=1))
    progress = clients * float(once.model[0])  # a: each client alone closes this share of its error
    assert 0.1 < progress < 1
    assert close(1 - averaged.model, torch.full_like(averaged.model, (1 - progress / clients) ** rounds))
    assert close(1 - stretched.model, torch.full_like(stretched.model, (1 - progress / 2) ** rounds))
    assert [r.metrics["server_lr"] for r in records[1:]] == pytest.approx([clients / 2] * rounds, rel=1e-9)


class Watcher(Sequential):
    """The real engine, with a note of what was measured."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: list[Any] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.measured += [request.model for _, request in questions if isinstance(request, Evaluate)]
        return super().answer(questions)


@pytest.mark.parametrize("evaluates_average", [True, False])
def test_contract_the_mean_of_the_last_two_iterates_is_measured_and_training_goes_on_from_the_last(
    evaluates_average: bool,
) -> None:
    task, watcher = blob_task(6), Watcher()
    server = FedExP(evaluates_average=evaluates_average)
    plan = Plan(local=SGD(lr=0.1, batch_size=4, epochs=1), rounds=3, server=server)
    run(task, plan, engine=watcher)
    iterates = [run(task, replace(plan, rounds=t))[0].model for t in (1, 2, 3)]
    for before, after, seen in zip(iterates[:-1], iterates[1:], watcher.measured[2:], strict=True):
        assert close(seen, (before + after) / 2 if evaluates_average else after)
        assert not close(before, after)


@dataclass(frozen=True)
class Absent:
    """Everyone is up but in these rounds."""

    rounds: tuple[int, ...]

    def up(self, view: View) -> Ids:
        return view.population.everyone[: 0 if view.round in self.rounds else None]


def test_contract_a_round_in_which_nobody_answers_measures_the_same_mean_again() -> None:
    task, watcher = blob_task(6), Watcher()
    local = SGD(lr=0.1, batch_size=4, epochs=1)
    plan = Plan(local=local, rounds=4, server=FedExP(), fleet=Fleet(availability=Absent((1, 3, 4))))
    final, records = run(task, plan, engine=watcher)
    start = task.layout.flatten(task.module)
    assert not close(final.model, start)
    assert torch.equal(watcher.measured[1], start)  # nobody has answered yet: there is one iterate
    for seen in watcher.measured[2:]:  # rounds 2, 3 and 4
        assert close(seen, (start + final.model) / 2)
    assert records[2].metrics["loss"] == records[3].metrics["loss"] == records[4].metrics["loss"]


def test_contract_a_run_taken_up_after_such_a_round_measures_that_mean() -> None:
    task, plan = blob_task(6), Plan(local=SGD(lr=0.1, batch_size=4, epochs=1), rounds=2, server=FedExP())
    half, _ = run(task, plan)
    watcher, population = Watcher(), Population.of(task.federation.sizes)
    on = replace(plan, rounds=3, fleet=Fleet(availability=Absent((3,))))
    job = Run(index=0, task=task, plan=on, state=again(half), streams=Streams(0), population=population)
    drive([job], watcher, lambda batch: None)
    before = run(task, replace(plan, rounds=1))[0].model
    assert close(watcher.measured[0], (before + half.model) / 2)


def test_contract_a_step_of_the_servers_own_is_measured_as_it_is() -> None:
    task, watcher = blob_task(6), Watcher()
    other = train_of(blob_task(1, seed=9).federation)
    helped = Task(
        federation=replace(task.federation, server=Samples(other.x, other.y)),
        module=task.module,
        loss=task.loss,
    )
    plan = Plan(
        local=SGD(lr=0.1, batch_size=4, epochs=1),
        rounds=9,
        server=FedExP(),
        assist=Safari(lr=0.2, client_prob=0.5),
        fleet=Fleet(availability=Absent((9,))),
    )
    _, records = run(helped, plan, engine=watcher)
    server = ["server round" in record.events for record in records]
    assert True in server[2:8]
    last = [run(helped, replace(plan, rounds=t))[0].model for t in range(1, 9)]
    iterates = [task.layout.flatten(task.module), *last]
    for round in range(1, 9):
        mean = (iterates[round - 1] + iterates[round]) / 2
        assert close(watcher.measured[round], iterates[round] if server[round] else mean)
    assert not server[9]
    assert close(watcher.measured[9], watcher.measured[8])  # nobody is up: as before, whoever moved it last


def test_engine_each_norm_meets_its_own_weight(any_engine: Callable[[], Engine]) -> None:
    sizes, targets = (1, 2, 4, 9), (8.0, 1.0, -4.0, 2.0)
    task = one_equation_each(4, sizes, targets)
    local = SGD(lr=0.1, steps=2, batches="full")
    _, records = run(task, Plan(local=local, rounds=1, server=FedExP(eps=0)), engine=any_engine())
    # Δ_i = −a·target_i·e_i: η_g = Σ w_i target_i² / (2 Σ w_i² target_i²), whatever a is
    w, squares = np.array(sizes) / sum(sizes), np.square(targets)
    assert records[1].metrics["server_lr"] == pytest.approx((w @ squares) / (2 * (w**2 @ squares)), rel=1e-9)
    assert (w @ squares) / (2 * (w**2 @ squares)) > 1.2


def test_golden_extrapolation_of_nothing_is_one() -> None:
    assert extrapolation(np.ones(2), np.zeros(2), 0.0, 0.0) == 1


def test_error_settings_that_cannot_be_name_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"FedExP needs eps >= 0; got -1\. Change server\.eps"):
        FedExP(eps=-1)
    with pytest.raises(ConfigError, match=r"eps_decay in \(0, 1\]; got 0\. Change server\.eps_decay"):
        FedExP(eps_decay=0)


def test_error_an_engine_without_norms_is_told_so() -> None:
    step = replace(step_of([[1.0]]), square_norms=None)
    with pytest.raises(UpdateError, match=r"FedExP needs the squared norm of every update.*wants_norms"):
        FedExP().advance(torch.zeros(1, dtype=torch.float64), step, {})


def test_error_a_direction_that_is_no_weighted_sum_is_refused() -> None:
    plan = Plan(local=SGD(lr=0.1, epochs=1), rounds=1, server=FedExP(), aggregation=Median())
    (problem,) = [found.message for found in problems(plan)]
    assert problem.startswith("FedExP on server: its learning rate needs a direction that is a weighted sum")
    assert 'Median has another one. Set server.use = "sgd"' in problem
    assert list(problems(replace(plan, aggregation=FedAvg()))) == []
