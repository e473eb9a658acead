"""SCAFFOLD (local.control with FedAvg): T4, where it ends on quadratics, and what the controls become."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.support.runs import run
from tests.support.scaffold_checks import (
    NEVER,
    OPTIMUM,
    E,
    H,
    Unequal,
    check_reaches_the_optimum,
    check_the_global_control_is_the_mean,
    controls,
    scaffold,
    task,
)
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedNova, FedVARP
from turnout.aggregation.fedavg import Weighting
from turnout.coordinator import MemoryLimit, Plan
from turnout.engine import Engine
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.protocols import Aggregation
from turnout.selection import Uniform

OPTIONS = ("average", "gradient")


@pytest.mark.parametrize("option", OPTIONS)
def test_identity_the_first_round_is_fedavg(option: Any, any_engine: Callable[[], Engine]) -> None:
    data = blob_task(5)
    plan = Plan(local=SGD(lr=0.1, batch_size=4, steps=3, control=option), rounds=1, evaluate=NEVER)
    mine, _ = run(data, plan, engine=any_engine())
    theirs, _ = run(data, replace(plan, local=replace(cast(SGD, plan.local), control="none")), engine=any_engine())
    assert torch.allclose(mine.model, theirs.model, rtol=0, atol=1e-12)
    assert controls(mine)[0].abs().max() > 0.01


def test_identity_one_step_and_full_participation_is_gradient_descent_whatever_the_controls() -> None:
    # from the second round on the controls are not 0, and yet Σ (c − c_i) is
    plan = scaffold(6, local=SGD)
    mine, _ = run(task(), plan)
    theirs, _ = run(task(), replace(plan, local=replace(cast(SGD, plan.local), control="none")))
    assert controls(mine)[0].abs().max() > 0.5
    assert torch.allclose(mine.model, theirs.model, rtol=0, atol=1e-12)


def test_identity_the_global_control_stays_the_mean_of_the_clients() -> None:
    check_the_global_control_is_the_mean()


def test_identity_one_full_gradient_step_makes_both_options_equal() -> None:
    one, two = (run(task(), scaffold(4, local=SGD, control=option))[0] for option in OPTIONS)
    assert torch.allclose(controls(one)[0], controls(two)[0], rtol=0, atol=1e-12)
    assert torch.allclose(one.model, two.model, rtol=0, atol=1e-12)


def test_golden_two_rounds_by_hand() -> None:
    # h = (1, 3), e = (2, 0), η = ½, two steps, from x = 0
    # round 1: x_0: 0, 1, 1½; x_1 stays 0. Δ = (−1½, 0); c_i = Δ / (2·½) = (−1½, 0); c = −¾; x = ¾
    # round 2: client 0 adds c − c_0 = ¾: ¾ − ½(¾ − 2 + ¾) = 1, then 1 − ½(1 − 2 + ¾) = 1⅛; Δ = −⅜
    #          client 1 adds −¾: ¾ − ½(2¼ − ¾) = 0, then 0 − ½(0 − ¾) = ⅜; Δ = ⅜
    #          c_0 = −1½ + ¾ − ⅜ = −1⅛; c_1 = 0 + ¾ + ⅜ = 1⅛; c = 0; x = ¾
    plan = scaffold(2, local=SGD, solver={"lr": 0.5, "steps": 2})
    final, _ = run(quadratic_task([1.0, 3.0], [[2.0], [0.0]], [1, 1]), plan)
    local, common = controls(final)
    assert final.model.item() == pytest.approx(0.75, abs=1e-12)
    assert local[:, 0].tolist() == pytest.approx([-1.125, 1.125], abs=1e-12)
    assert common.item() == pytest.approx(0.0, abs=1e-12)


def test_golden_option_one_keeps_the_gradient_at_the_model_that_was_sent() -> None:
    first, _ = run(task(), scaffold(1, control="gradient"))
    second, _ = run(task(), scaffold(2, control="gradient"))
    assert controls(first)[0].numpy() == pytest.approx(-E, abs=1e-12)  # at x = 0
    assert controls(second)[0].numpy() == pytest.approx(H[:, None] * first.model.numpy() - E, abs=1e-12)
    average, _ = run(task(), scaffold(1, control="average"))
    assert not np.allclose(controls(average)[0].numpy(), -E)  # option II is an average along the way


@pytest.mark.parametrize(
    "solver", [{"momentum": 0.9}, {"lr_decay": 0.8}, {"prox_strength": 0.5}, {"momentum": 0.7, "lr_decay": 0.9}]
)
def test_identity_controls_are_average_gradients_under_any_solver(solver: dict[str, float]) -> None:
    # h = 0: every gradient is −e_i, and after one round c_i must be exactly that; a division by τ_i would miss it
    flat = quadratic_task([0.0, 0.0, 0.0], E.tolist(), [1, 1, 1])
    for rounds in (1, 2):
        final, _ = run(flat, scaffold(rounds, solver=solver))
        assert controls(final)[0].numpy() == pytest.approx(-E, abs=1e-12)


@pytest.mark.parametrize("option", OPTIONS)
def test_convergence_reaches_the_optimum_where_fedavg_is_biased(option: str) -> None:
    check_reaches_the_optimum(scaffold(100, control=option))
    biased, _ = run(task(), replace(scaffold(100), local=Unequal(lr=0.1, steps=1, batches="full")))
    assert np.linalg.norm(biased.model.numpy() - OPTIMUM) > 0.5


@pytest.mark.parametrize("aggregation", [FedAvg(), FedNova()], ids=["fedavg", "fednova"])
def test_convergence_with_momentum_reaches_the_optimum_too(aggregation: Aggregation) -> None:
    check_reaches_the_optimum(scaffold(100, aggregation=aggregation, solver={"momentum": 0.5, "lr": 0.05}))


def test_convergence_a_few_clients_a_round_reach_the_optimum() -> None:
    check_reaches_the_optimum(scaffold(150, selection=Uniform(cohort_size=2)))


def test_contract_clients_that_were_not_asked_keep_their_control() -> None:
    plan = scaffold(1, selection=Uniform(cohort_size=1))
    final, records = run(task(), plan)
    local, common = controls(final)
    away = np.setdiff1d(np.arange(3), records[-1].answered)
    assert (local[torch.from_numpy(away)] == 0).all()
    assert torch.allclose(common, local.sum(0) / 3, rtol=0, atol=1e-12)


def test_engine_engines_and_places_of_memory_agree(any_engine: Callable[[], Engine]) -> None:
    data = blob_task(6)
    plan = Plan(
        local=SGD(lr=0.1, batch_size=4, epochs=(1, 2), momentum=0.5, control="average"),
        rounds=5,
        fleet=Fleet(availability=Bernoulli(prob=0.7)),
        selection=Uniform(cohort_size=3),
        evaluate=NEVER,
    )
    here, _ = run(data, plan)
    there, _ = run(data, replace(plan, memory=MemoryLimit(table_mib=0)), engine=any_engine())
    assert there.world["store control"].file is not None
    assert torch.allclose(here.model, there.model, rtol=0, atol=1e-12)
    assert torch.allclose(controls(here)[0], controls(there)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("control", "weighting"), [("average", "ratio"), ("gradient", "mean")])
def test_convergence_unequal_clients_reach_the_optimum_of_the_weighted_objective(
    control: str, weighting: Weighting
) -> None:
    sizes = np.array([1, 2, 7])
    p = sizes / sizes.sum()
    plan = scaffold(600, control=control, aggregation=FedAvg(weighting=weighting))
    final, _ = run(quadratic_task(H.tolist(), E.tolist(), sizes.tolist()), plan)
    assert np.allclose(final.model.numpy(), p @ E / (p @ H), rtol=0, atol=1e-6)


def test_contract_controls_go_with_a_filter_that_trains() -> None:
    from turnout.filtering import UpdateNorm

    plain = scaffold(5)
    filtered, _ = run(task(), replace(plain, filtering=UpdateNorm(factor=1e9)))
    assert torch.allclose(filtered.model, run(task(), plain)[0].model, rtol=0, atol=1e-12)


def test_contract_the_bytes_of_the_controls_are_reported_beside_the_aggregations_own() -> None:
    _, plain = run(task(), scaffold(1, control="none"))
    _, alone = run(task(), scaffold(1))
    _, both = run(task(), scaffold(1, aggregation=FedVARP()))
    own = 3 * 2 * 8 + 2 * 8  # three rows of two numbers, and their mean
    assert "memory_bytes" not in plain[-1].metrics
    assert alone[-1].metrics["memory_bytes"] == own
    assert both[-1].metrics["memory_bytes"] == 2 * own


def test_contract_controls_are_paid_for() -> None:
    _, without = run(task(), scaffold(1, control="none"))
    _, average = run(task(), scaffold(1, control="average"))
    _, gradient = run(task(), scaffold(1, control="gradient"))
    base = without[-1].costs
    assert average[-1].costs.bytes_down == 2 * base.bytes_down
    assert average[-1].costs.bytes_up == 2 * base.bytes_up
    assert (average[-1].costs.probe_evaluations, gradient[-1].costs.probe_evaluations) == (0, 3)
