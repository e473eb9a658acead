"""FedVARP: T12, a case worked by hand, its variance, its memory, and clients that come and go."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.aggregation_inputs import combined, facts, view
from tests.support.fedvarp_checks import (
    HERE,
    NEW,
    OLD,
    SIZES,
    P,
    check_golden,
    check_multiplicity,
    check_no_variance_once_all_were_heard,
    check_unbiased_over_all_subsets,
    remembered,
    some,
)
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedVARP
from turnout.coordinator import Cadence, MemoryLimit, Plan
from turnout.engine import Engine
from turnout.errors import UpdateError
from turnout.local import SGD
from turnout.row_table import RowTable, weighted_sum
from turnout.selection import Uniform, Weighted

NEVER = Cadence(every=10**9)


def test_golden_three_rounds_by_hand() -> None:
    check_golden(FedVARP())


def test_golden_a_client_drawn_twice_counts_twice_and_is_remembered_once() -> None:
    check_multiplicity(FedVARP(), remembered(FedVARP()))


@pytest.mark.parametrize("weighting", ["mean", "ht"])
@pytest.mark.parametrize("normalise", [False, True])
def test_identity_full_participation_is_fedavg_whatever_is_remembered(weighting: Any, normalise: bool) -> None:
    rule = FedVARP(weighting=weighting, normalise_by_lr=normalise)
    got = some(rule, range(4), memory=remembered(rule))
    assert got.direction.numpy() == pytest.approx((NEW.mean(0) if weighting == "mean" else P @ NEW), abs=1e-12)


@pytest.mark.parametrize("weighting", ["mean", "ht"])
def test_identity_the_first_round_is_fedavg(weighting: Any) -> None:
    got = some(FedVARP(weighting=weighting), [0, 2])
    theirs = FedAvg(weighting=weighting).coefficients(facts([0, 2], weights=P[[0, 2]], prob=[0.5, 0.5], total=4))
    assert got.direction.numpy() == pytest.approx(theirs @ NEW[[0, 2]], abs=1e-12)
    assert got.coefficients == pytest.approx(theirs)


def test_identity_full_participation_in_a_run_is_fedavg(any_engine: Callable[[], Engine]) -> None:
    plan = Plan(local=SGD(lr=0.1, batch_size=4, epochs=1), rounds=3, evaluate=NEVER)
    task = blob_task(5)
    theirs, _ = run(task, replace(plan, aggregation=FedAvg(weighting="mean")), engine=any_engine())
    mine, _ = run(task, replace(plan, aggregation=FedVARP()), engine=any_engine())
    assert torch.allclose(mine.model, theirs.model, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_property_unbiased_over_all_subsets(size: int) -> None:
    check_unbiased_over_all_subsets(FedVARP(), size, remembered(FedVARP()))


def test_property_the_weighted_form_is_unbiased_for_unequal_chances() -> None:
    # one client is asked, client i with chance q_i: E v = Σ q_i (p_i / q_i)(Δ_i − y_i) + Σ p y = Σ p Δ
    rule, q = FedVARP(weighting="ht"), np.array([0.4, 0.3, 0.2, 0.1])
    memory = remembered(rule)
    got = sum(q[i] * some(rule, [i], memory=memory, prob=[q[i]]).direction.numpy() for i in range(4))
    assert got == pytest.approx(P @ NEW, abs=1e-12)


def test_property_constant_changes_have_no_variance_once_all_were_heard() -> None:
    check_no_variance_once_all_were_heard(FedVARP(), remembered(FedVARP()))


ROUNDS = st.lists(
    st.tuples(st.sets(st.integers(0, 3), min_size=1), st.lists(st.floats(-9, 9), min_size=8, max_size=8)), max_size=6
)


@given(ROUNDS, st.sampled_from(["mean", "ht"]))
def test_property_the_mean_carried_along_is_the_mean_of_the_table(
    rounds: list[tuple[set[int], list[float]]], weighting: Any
) -> None:
    memory: dict[str, Any]
    rule, memory = FedVARP(weighting=weighting), {}
    for clients, numbers in rounds:
        memory = some(rule, sorted(clients), changes=np.reshape(numbers, (4, 2)), memory=memory).memory
        shares = P if weighting == "ht" else np.full(4, 0.25)
        whole = shares @ memory["table"].take(np.arange(4)).numpy()
        assert memory["mean"].numpy() == pytest.approx(whole, abs=1e-12)


def test_golden_a_halved_rate_halves_what_is_remembered() -> None:
    # G = Δ / η = OLD / 0.2; at η = 0.1, S = {0}: v = (Δ_0 − OLD_0 / 2) + mean(OLD) / 2
    rule = FedVARP(normalise_by_lr=True)
    everyone = facts(np.arange(4), lr=0.2)
    memory = combined(rule, everyone, OLD, HERE).memory
    got = some(rule, [0], memory=memory, lr=0.1)
    assert got.direction.numpy() == pytest.approx(NEW[0] - OLD[0] / 2 + OLD.mean(0) / 2, abs=1e-12)
    assert got.coefficients == pytest.approx([1.0])
    plain = some(FedVARP(), [0], memory=remembered(FedVARP()), lr=0.1)
    assert plain.direction.numpy() == pytest.approx(NEW[0] - OLD[0] + OLD.mean(0), abs=1e-12)


@pytest.mark.parametrize("weighting", ["mean", "ht"])
def test_contract_a_client_that_left_the_objective_is_forgotten_in_the_mean(weighting: Any) -> None:
    rule = FedVARP(weighting=weighting)
    memory = remembered(rule)
    without = view(SIZES, 2, counted=[True, False, True, True])
    given_facts = facts([0], weights=without.weights[[0]], prob=[1 / 3], total=3)
    got = combined(rule, given_facts, NEW[[0]], without, memory)
    shares = without.weights if weighting == "ht" else np.array([1, 0, 1, 1]) / 3
    factor = 1.0 if weighting == "mean" else shares[0] * 3
    assert got.direction.numpy() == pytest.approx(factor * (NEW[0] - OLD[0]) + shares @ OLD, abs=1e-12)


def test_contract_rows_are_summed_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RowTable(4, torch.zeros(2, dtype=torch.float64))
    table.put(np.arange(4), torch.from_numpy(OLD))
    for block in (1, 16, 32, 48, 10**6):
        monkeypatch.setattr("turnout.row_table.BLOCK_BYTES", block)
        assert weighted_sum(table, P).numpy() == pytest.approx(P @ OLD, abs=1e-12)


def test_engine_engines_and_places_of_memory_agree(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(8)
    plan = Plan(
        local=SGD(lr=0.1, batch_size=4, epochs=1),
        rounds=6,
        selection=Uniform(cohort_size=3),
        aggregation=FedVARP(),
        evaluate=NEVER,
    )
    here, records = run(task, plan)
    there, _ = run(task, replace(plan, memory=MemoryLimit(table_mib=0)), engine=any_engine())
    assert here.aggregation["table"].file is None
    assert there.aggregation["table"].file is not None
    assert torch.allclose(here.model, there.model, rtol=0, atol=1e-12)
    parameters = here.model.numel()
    assert records[-1].metrics["memory_bytes"] == 8 * (8 * parameters) + 8 * parameters  # eight rows and their mean


def test_convergence_reaches_the_optimum_with_one_client_a_round_where_fedavg_keeps_wandering() -> None:
    h, e = np.array([1.0, 2.0, 0.5, 1.5]), np.array([[4.0], [-8.0], [3.0], [0.0]])
    task = quadratic_task(h.tolist(), e.tolist(), [1, 1, 1, 1])
    plan = Plan(
        local=SGD(lr=0.1, steps=1, batches="full"),
        rounds=300,
        selection=Uniform(cohort_size=1),
        aggregation=FedVARP(),
        evaluate=NEVER,
    )
    optimum = e.mean() / h.mean()
    assert run(task, plan)[0].model.item() == pytest.approx(optimum, abs=1e-6)
    wandering = [
        run(task, replace(plan, rounds=rounds, aggregation=FedAvg(weighting="mean")))[0].model.item()
        for rounds in (20, 21, 22, 23)
    ]
    assert np.abs(np.array(wandering) - optimum).max() > 0.1


def test_convergence_the_weighted_form_reaches_the_weighted_optimum() -> None:
    h, e, sizes = np.array([1.0, 2.0, 0.5]), np.array([[4.0], [-8.0], [3.0]]), np.array([1, 2, 7])
    plan = Plan(
        local=SGD(lr=0.05, steps=1, batches="full"),
        rounds=500,
        selection=Weighted(cohort_size=2),
        aggregation=FedVARP(weighting="ht"),
        evaluate=NEVER,
    )
    final, _ = run(quadratic_task(h.tolist(), e.tolist(), sizes.tolist()), plan)
    p = sizes / 10
    assert final.model.item() == pytest.approx(p @ e[:, 0] / (p @ h), abs=1e-5)


def test_error_ht_without_inclusion_probabilities_says_what_to_do() -> None:
    with pytest.raises(UpdateError, match=r'weighting = "ht" needs inclusion probabilities'):
        combined(FedVARP(weighting="ht"), facts([0], total=4), OLD[[0]], HERE)
