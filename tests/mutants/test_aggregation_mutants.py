"""Mistakes that other libraries published, made in our own code: the suite's checks must reject each."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import cluster_fedvarp_checks as cluster_checks
from tests.support import fednova_checks, fedvarp_checks, scaffold_checks
from tests.support.aggregation_inputs import combined, facts
from turnout.aggregation import ClusterFedVARP, FedAvg, FedNova, FedVARP, cluster_fedvarp, fednova
from turnout.aggregation.fedvarp import WeightedTable, restore_table
from turnout.array_types import Floats
from turnout.protocols import Combined, View
from turnout.requests import Settle
from turnout.rows import Rows
from turnout.world.simulation.client_store import ClientStore

rejected = pytest.raises(AssertionError)


def divide_by_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that normalises its weights: the mean work becomes a harmonic mean."""

    def summed_to_one(weights: Floats, local_work: Floats, effective_work: float) -> Floats:
        coefficients = effective_work * weights / local_work
        result: Floats = coefficients / coefficients.sum()
        return result

    monkeypatch.setattr(fednova, "normalised_coefficients", summed_to_one)


def test_contract_fednova_with_weights_divided_by_their_sum_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    divide_by_the_sum(monkeypatch)
    with rejected:
        fednova_checks.check_golden(FedNova())
    with rejected:
        fednova_checks.check_common_direction(FedNova(), [1, 3], np.array([2.0, 5.0]))


def test_contract_equal_work_alone_does_not_see_that_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = facts([0, 1], weights=[0.25, 0.75], steps=[3, 3])
    divide_by_the_sum(monkeypatch)
    assert FedNova().coefficients(equal) == pytest.approx(FedAvg().coefficients(equal))


class WeighsModels:
    """FedNova's coefficients applied to the clients' models in place of their changes."""

    def combine(self, rows: Rows, memory: dict[Any, Any], view: View, ask: Any) -> Combined:
        coefficients = FedNova().coefficients(rows.facts)
        models = view.model - rows.delta
        return Combined(direction=view.model - torch.as_tensor(coefficients) @ models, coefficients=coefficients)


def test_contract_models_in_place_of_changes_are_rejected() -> None:
    with rejected:
        fednova_checks.check_nobody_moved_means_no_step(WeighsModels())
    with rejected:
        fednova_checks.check_golden(WeighsModels())


class RemembersFirst(FedVARP):
    """FedVARP that stores the new changes before it uses the old ones."""

    def combine(self, rows: Rows, memory: dict[str, Any], view: View, ask: Any) -> Combined:
        stored = FedVARP.combine(self, rows, memory, view, ask)
        return FedVARP.combine(self, rows, stored.memory, view, ask)


def test_contract_fedvarp_that_remembers_before_use_is_rejected() -> None:
    memory = fedvarp_checks.remembered(FedVARP())
    with rejected:
        fedvarp_checks.check_golden(RemembersFirst())
    with rejected:
        fedvarp_checks.check_unbiased_over_all_subsets(RemembersFirst(), 2, memory)
    # constant changes cannot tell: this check alone would let it pass
    fedvarp_checks.check_no_variance_once_all_were_heard(RemembersFirst(), memory)


class DividesByClients(FedVARP):
    """FedVARP whose first term is divided by the distinct clients, not by the draws."""

    def combine(self, rows: Rows, memory: dict[str, Any], view: View, ask: Any) -> Combined:
        draws = rows.facts.num_draws / len(rows.facts)
        got = FedVARP.combine(self, rows, memory, view, ask)
        mean = memory["mean"] if memory else torch.zeros_like(view.model)
        return Combined(
            direction=(got.direction - mean) * draws + mean, coefficients=got.coefficients, memory=got.memory
        )


def test_contract_fedvarp_that_forgets_how_often_a_client_was_drawn_is_rejected() -> None:
    with rejected:
        fedvarp_checks.check_multiplicity(DividesByClients(), fedvarp_checks.remembered(FedVARP()))


def test_contract_clusters_that_all_count_alike_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_over_q(memory: dict[str, Any], view: View, shares: Floats) -> WeightedTable:
        return restore_table(memory, view, np.full_like(shares, 1 / len(shares)))

    monkeypatch.setattr(cluster_fedvarp, "restore_table", one_over_q)
    with rejected:
        cluster_checks.check_golden(ClusterFedVARP(num_clusters=2))
    with rejected:
        cluster_checks.check_unbiased_over_all_subsets(ClusterFedVARP(num_clusters=2))


def move_the_control(monkeypatch: pytest.MonkeyPatch, by: Callable[..., Any]) -> None:
    """Let clients take their new control variates, then move c by another rule of the changes of c_i."""
    real = ClientStore.settle

    def settle(self: ClientStore, request: Settle) -> Generator[Any, Any, Any]:
        table, facts = self.table("control", request.order.model), request.facts
        before = table.take(facts.clients)
        settled = yield from real(self, request)
        moved = request.order.shared + by(table.take(facts.clients) - before, facts)
        return replace(settled, shared=moved)

    monkeypatch.setattr(ClientStore, "settle", settle)


@pytest.mark.parametrize(
    "by",
    [
        pytest.param(lambda change, given: change[-1] / given.num_clients, id="the last client overwrites the sum"),
        pytest.param(lambda change, given: change.sum(0) / len(given), id="divided by the cohort"),
        pytest.param(lambda change, given: change.sum(0) / given.num_clients, id="clients of all sizes alike"),
    ],
)
def test_contract_scaffold_that_moves_its_control_wrongly_is_rejected(
    monkeypatch: pytest.MonkeyPatch, by: Callable[..., Any]
) -> None:
    move_the_control(monkeypatch, by)
    with rejected:
        scaffold_checks.check_the_global_control_is_the_mean()


def test_contract_scaffold_whose_last_client_overwrites_the_sum_misses_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    move_the_control(monkeypatch, lambda change, given: change[-1] / given.num_clients)
    with rejected:
        scaffold_checks.check_reaches_the_optimum(scaffold_checks.scaffold(100))


def test_contract_the_checks_accept_the_rules_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    move_the_control(monkeypatch, lambda change, given: change.new_tensor(given.weights) @ change)  # the same
    scaffold_checks.check_the_global_control_is_the_mean()
    fednova_checks.check_golden(FedNova())
    fedvarp_checks.check_golden(FedVARP())
    cluster_checks.check_golden(ClusterFedVARP(num_clusters=2))
    got = combined(FedNova(), facts([0], steps=[3]), [6.0], fedvarp_checks.HERE)
    assert got.direction.item() == pytest.approx(6.0)
