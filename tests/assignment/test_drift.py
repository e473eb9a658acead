"""Drift: FedDrift's distances and mergers, what it reduces to, and that it finds staggered changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.saved_states import again
from tests.support.several_checks import (
    LOCAL,
    alike,
    assert_a_merger_weighs_models_by_their_blocks_and_keeps_the_number_of_blocks,
    assert_a_new_model_is_a_copy_and_forgets_who_used_its_slot,
    assert_distances_by_hand,
    assert_models_of_clients_that_train_alone_are_no_candidates,
    assert_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained,
    drifting,
)
from tests.support.several_runs import model_of, models_of, network, several_run
from turnout.aggregation import FedAvg, Tilted
from turnout.assignment import Concept, Drift, LowestLoss
from turnout.assignment.drift import Found, distances
from turnout.assignment.linkage import clusters
from turnout.coordinator import Cadence
from turnout.engine import Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Fleet
from turnout.local import SGD
from turnout.requests import Fit, Probe
from turnout.selection import Uniform
from turnout.server import FedAdam


def test_golden_distances_by_hand() -> None:
    assert_distances_by_hand()


@given(st.lists(st.floats(0, 1), min_size=9, max_size=9), st.booleans())
def test_property_a_distance_is_symmetric_zero_at_home_and_never_negative(values: list[float], swapped: bool) -> None:
    apart = distances(np.array(values).reshape(3, 3), swapped)
    assert np.array_equal(apart, apart.T)
    assert (np.diag(apart) == 0).all()
    assert (apart >= 0).all()


def test_golden_complete_and_average_linkage_by_hand() -> None:
    # 0 and 1 are 1 apart, 2 is 2 from 1 and 4 from 0: from {0, 1} it is 4 (largest) or 3 (mean)
    apart = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 2.0], [4.0, 2.0, 0.0]])
    assert clusters(apart, 0.9, "complete") == [[0], [1], [2]]
    assert clusters(apart, 3.0, "complete") == [[0, 1], [2]]
    assert clusters(apart, 3.0, "average") == [[0, 1, 2]]
    assert clusters(apart, 4.0, "complete") == [[0, 1, 2]]


def test_golden_a_group_lists_its_members_in_ascending_order() -> None:
    apart = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 5.0], [1.0, 5.0, 0.0]])  # 2 joins 0 before 1 does
    assert clusters(apart, 5.0, "complete") == [[0, 1, 2]]


def test_golden_a_bound_of_zero_merges_what_is_equal() -> None:
    apart = np.array([[0.0, 0.0, 0.1], [0.0, 0.0, 0.1], [0.1, 0.1, 0.0]])
    assert clusters(apart, 0.0, "complete") == [[0, 1], [2]]


def test_golden_a_merger_weighs_models_by_their_blocks_and_keeps_the_number_of_blocks() -> None:
    assert_a_merger_weighs_models_by_their_blocks_and_keeps_the_number_of_blocks()


def test_golden_a_slot_is_one_never_used_then_the_least_recently_used() -> None:
    blocks = np.array([[0, 0, 1, 1], [2, 2, 2, 1]])
    found = Found(torch.zeros(4, 1), blocks, step=3)
    assert found.free_slot(np.array([1])) == 3
    assert Found(torch.zeros(3, 1), blocks, step=3).free_slot(np.array([1])) == 0
    assert Found(torch.zeros(2, 1), np.array([[0, 1]]), step=1).free_slot(np.array([0])) is None


def test_golden_a_new_model_is_a_copy_and_forgets_who_used_its_slot() -> None:
    assert_a_new_model_is_a_copy_and_forgets_who_used_its_slot()


def test_golden_models_of_clients_that_train_alone_are_no_candidates() -> None:
    assert_models_of_clients_that_train_alone_are_no_candidates()


def test_golden_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained(tmp_path: Path) -> None:
    assert_the_level_before_is_that_of_the_untrained_model_and_after_that_of_the_trained(tmp_path)


def test_newest_samples_alone_are_compared_and_trained(tmp_path: Path) -> None:
    task = drifting(tmp_path, "0 0\n0 1\n0 1\n")
    rule = LowestLoss(num_models=2, newest=True)
    _, records = several_run(task, rule, rounds=8, local=LOCAL)
    _, whole = several_run(task, LowestLoss(num_models=2), rounds=8, local=LOCAL)

    assert [records[round].costs.gradient_evaluations for round in (1, 5)] == [2 * 5 * 50, 2 * 5 * 50]
    assert [records[round].costs.probe_evaluations for round in (1, 5)] == [2 * 2 * 50, 2 * 2 * 50]
    assert [whole[round].costs.gradient_evaluations for round in (1, 5)] == [2 * 5 * 50, 2 * 5 * 100]


def test_error_newest_samples_of_data_that_do_not_change() -> None:
    with pytest.raises(ConfigError, match="newest = true needs data that change with time; this federation's do not"):
        several_run(network(), LowestLoss(num_models=2, newest=True))


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(deterministic=True)], ids=["sequential", "vectorised"])
@pytest.mark.parametrize("compare", ["before", "after"])
def test_identity_without_a_drift_it_is_one_model_on_all_samples_so_far(
    tmp_path: Path, engine: Any, compare: Any
) -> None:
    task = drifting(tmp_path)
    rule = Drift(num_models=3, threshold=9.0, merge_threshold=9.0, compare=compare)
    plain, plain_records = several_run(task, None, rounds=20, local=LOCAL, engine=engine)
    one, records = several_run(task, rule, models=alike(task, 3), rounds=20, local=LOCAL, engine=engine)

    assert torch.equal(plain.model, one.model)
    assert [r.metrics["loss"] for r in records] == pytest.approx([r.metrics["loss"] for r in plain_records], abs=1e-6)
    assert [r.costs.gradient_evaluations for r in records] == [r.costs.gradient_evaluations for r in plain_records]


@pytest.mark.parametrize("rule", [Drift(num_models=4, threshold=0.2), Drift(num_models=4, threshold=0.2, eager=True)])
@pytest.mark.parametrize("compare", ["before", "after"])
def test_staggered_changes_of_two_concepts_end_in_two_models_and_the_truth(
    tmp_path: Path, rule: Drift, compare: Any
) -> None:
    task = drifting(tmp_path)
    rule = Drift(num_models=4, threshold=0.2, eager=rule.eager, compare=compare)
    state, records = several_run(task, rule, models=alike(task, 4), rounds=20, local=LOCAL)
    oracle, truth = several_run(task, Concept(num_models=2), models=alike(task, 2), rounds=20, local=LOCAL)
    used = model_of(records[-1])

    assert len(np.unique(used)) == 2
    assert (used[1:] == used[1]).all()  # clients 1 to 3 have changed, client 0 has not
    assert used[0] == 0
    assert used[1] != 0
    assert model_of(truth[-1]).tolist() == [0, 1, 1, 1]
    assert records[-1].metrics["accuracy"] == pytest.approx(truth[-1].metrics["accuracy"], abs=0.05)
    assert len(models_of(oracle)) == 2
    assert state.assignment["blocks"].min() >= 0


def test_contract_saved_half_way_and_restored_ends_the_same(tmp_path: Path) -> None:
    task, rule = drifting(tmp_path), Drift(num_models=4, threshold=0.2)
    more: dict[str, Any] = {"local": LOCAL, "server": FedAdam(lr=0.5)}
    whole, whole_records = several_run(task, rule, models=alike(task, 4), rounds=20, **more)
    half, _ = several_run(task, rule, models=alike(task, 4), rounds=10, **more)
    final, records = several_run(task, rule, rounds=20, state=again(half), **more)

    assert torch.equal(models_of(final), models_of(whole))
    assert records[-1].metrics == whole_records[-1].metrics
    assert np.array_equal(final.assignment["blocks"], whole.assignment["blocks"])


def test_engine_both_agree(tmp_path: Path) -> None:
    task, rule = drifting(tmp_path), Drift(num_models=4, threshold=0.2)
    local = SGD(lr=1.0, epochs=2, batch_size=16)
    one, first = several_run(task, rule, models=alike(task, 4), rounds=20, local=local)
    two, second = several_run(
        task, rule, models=alike(task, 4), rounds=20, local=local, engine=Vectorised(deterministic=True)
    )

    assert torch.allclose(models_of(one), models_of(two), rtol=0, atol=1e-4)
    assert np.array_equal(model_of(first[-1]), model_of(second[-1]))


def test_models_are_measured_on_the_next_time_step_and_trained_on_the_samples_so_far(tmp_path: Path) -> None:
    task = drifting(tmp_path, "0 0\n0 1\n0 1\n")
    _, records = several_run(task, None, rounds=8, local=LOCAL, evaluate=Cadence(clients_every=1))

    assert records[4].client_accuracy is not None
    assert records[8].client_accuracy is not None
    assert records[4].client_accuracy[0] > 0.9  # trained on concept 0 alone
    assert records[4].client_accuracy[1] < 0.1  # measured on concept 1, which has not come
    assert records[1].costs.gradient_evaluations == 2 * 5 * 50
    assert records[5].costs.gradient_evaluations == 2 * 5 * 100


def test_the_oracle_trains_on_the_samples_of_its_concept_alone(tmp_path: Path) -> None:
    task = drifting(tmp_path, "0 0\n0 1\n0 1\n")
    _, records = several_run(task, Concept(num_models=2), rounds=8, local=LOCAL)

    assert records[5].costs.gradient_evaluations == 5 * (100 + 50)
    assert model_of(records[5]).tolist() == [0, 1]
    _, plain = several_run(task, None, rounds=8, local=LOCAL)
    assert records[8].metrics["accuracy"] > plain[8].metrics["accuracy"]  # which is trained on both concepts


@pytest.mark.parametrize("rule", [Concept(num_models=2), LowestLoss(num_models=2, newest=True)])
def test_golden_losses_that_weigh_updates_are_on_the_samples_that_clients_train_on(tmp_path: Path, rule: Any) -> None:
    task, trained = drifting(tmp_path), dict[int, list[bool]]()
    at_weighing: list[tuple[int, list[bool]]] = []

    class Watching(Sequential):
        def answer(self, questions: Any) -> Any:
            for request in (each for _, each in questions if each.round == 10):  # in the third time step
                if isinstance(request, Fit):
                    trained.update(blocks_of(request))
                elif isinstance(request, Probe) and trained:
                    at_weighing.extend(blocks_of(request).items())
            return super().answer(questions)

    plan: dict[str, Any] = {"aggregation": Tilted(tilt=1.0), "evaluate": Cadence(every=100)}
    several_run(task, rule, rounds=11, local=LOCAL, engine=Watching(), **plan)
    assert sorted(client for client, _ in at_weighing) == [0, 1, 2, 3]
    assert all(row == trained[client] for client, row in at_weighing)


def blocks_of(request: Fit | Probe) -> dict[int, list[bool]]:
    """Return the time steps whose samples each client of a request uses."""
    assert request.blocks is not None
    return dict(zip(request.clients.tolist(), request.blocks.tolist(), strict=True))


@pytest.mark.parametrize("wait", [1, 2, 3])
def test_golden_a_new_model_is_merged_after_its_client_has_trained_it_alone(tmp_path: Path, wait: int) -> None:
    # client 1 drifts in time step 1, and models are merged as soon as both are candidates
    task = drifting(tmp_path, "0 0\n" + "0 1\n" * 5)
    rule = Drift(num_models=2, threshold=0.2, merge_threshold=9.0, wait=wait)
    _, records = several_run(task, rule, models=alike(task, 2), rounds=20, local=LOCAL)
    merged = [record.round for record in records if any("merged" in event for event in record.events)]
    assert merged[0] == 4 * (1 + wait) + 1
    assert [model_of(record)[1] for record in records[5 : merged[0]]] == [1] * (4 * wait)


def test_golden_a_client_that_finds_no_model_free_stays_with_the_best_and_trains_with_the_others(
    tmp_path: Path,
) -> None:
    task = drifting(tmp_path, "0 0\n0 1\n0 1\n0 1\n")
    state, records = several_run(task, Drift(num_models=1, threshold=0.2), models=alike(task, 1), rounds=9, local=LOCAL)
    assert records[5].events == ("client 1 drifted, and stays with model 0: no model is free",)
    assert state.assignment["release"].tolist() == [0, 0]
    assert all(model_of(record).tolist() == [0, 0] for record in records[1:])


@pytest.mark.parametrize("weighting", ["ratio", "mean"])
def test_golden_a_clients_weight_is_its_samples_that_train_the_model(tmp_path: Path, weighting: Any) -> None:
    # in time step 2, clients 0 and 2 have three blocks of concept 0, client 1 two of concept 1, and client 3 one
    task, rule = drifting(tmp_path), FedAvg(weighting=weighting)
    _, records = several_run(task, Concept(num_models=2), rounds=10, local=LOCAL, aggregation=rule)
    assert model_of(records[10]).tolist() == [0, 1, 0, 1]
    shares = {"ratio": [1 / 2, 2 / 3, 1 / 2, 1 / 3], "mean": [1 / 2] * 4}
    assert records[10].coefficients.tolist() == pytest.approx(shares[weighting])


def test_a_client_that_is_away_when_a_time_step_begins_stays_with_its_model(tmp_path: Path) -> None:
    task = drifting(tmp_path)
    state, records = several_run(
        task, Drift(num_models=4), models=alike(task, 4), rounds=20, local=LOCAL, selection=Uniform(cohort_size=2)
    )
    blocks = state.assignment["blocks"]
    for step in range(1, 5):
        away = np.setdiff1d(np.arange(4), records[4 * step + 1].asked)
        merged = any("merged" in event for event in records[4 * step + 1].events)
        assert merged or (blocks[away, step] == blocks[away, step - 1]).all()


class Present:
    """Everyone is up, but for these clients in these rounds."""

    def __init__(self, away: dict[int, list[int]]) -> None:
        self.away = away

    def up(self, view: Any) -> Any:
        return np.setdiff1d(np.arange(4), self.away.get(view.round, []))


@pytest.mark.parametrize("compare", ["before", "after"])
@pytest.mark.parametrize("rounds_away", [[1], [5], [1, 2, 3, 4], [5, 6, 7, 8]])
def test_golden_nobody_is_asked_for_accuracies_where_nobody_is_up(
    tmp_path: Path, compare: Any, rounds_away: list[int]
) -> None:
    fleet = Fleet(availability=Present({round: [0, 1, 2, 3] for round in rounds_away}))
    task, rule = drifting(tmp_path), Drift(num_models=4, threshold=0.2, compare=compare)
    state, records = several_run(task, rule, models=alike(task, 4), rounds=20, local=LOCAL, fleet=fleet)
    assert records[rounds_away[0]].costs.probe_evaluations == 0
    assert state.assignment["blocks"].min() >= 0
    assert records[-1].metrics["accuracy"] > 0.8


def test_golden_clients_that_train_alone_are_not_asked_when_nobody_else_is_up(tmp_path: Path) -> None:
    task = drifting(tmp_path, "0 0 0 0\n" + "0 1 0 0\n" * 5)
    fleet = Fleet(availability=Present({9: [0, 2, 3]}))  # client 1 drifts in round 5 and trains alone until round 17
    rule = Drift(num_models=4, threshold=0.2, wait=3)
    _, records = several_run(task, rule, models=alike(task, 4), rounds=20, local=LOCAL, fleet=fleet)
    assert records[9].answered.tolist() == [1]
    assert records[9].costs.probe_evaluations == 0
    assert model_of(records[9])[1] == model_of(records[5])[1] == 1


def test_costs_a_client_measures_after_training_no_model_but_its_own(tmp_path: Path) -> None:
    task, probed = drifting(tmp_path, "0 0\n0 1\n0 1\n"), {}
    for compare in ("before", "after"):
        rule = Drift(num_models=3, threshold=9.0, compare=compare)
        _, records = several_run(task, rule, models=alike(task, 3), rounds=5, local=LOCAL)
        probed[compare] = records[5].costs.probe_evaluations
    assert probed == {"before": 2 * 50, "after": 2 * 50 + 2 * 50}  # one model in use, on the new and the last samples


def test_error_data_that_do_not_change() -> None:
    with pytest.raises(ConfigError, match="Drift on assignment needs data that change with time"):
        several_run(network(), Drift(num_models=2))


def test_error_more_rounds_than_samples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"which is 20 rounds; got rounds = 21\. Set rounds to 20 or less"):
        several_run(drifting(tmp_path), LowestLoss(num_models=1), rounds=21)


def test_error_fewer_models_than_concepts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a model for each of the 2 concepts of the data; got num_models = 1"):
        several_run(drifting(tmp_path), Concept(num_models=1))
