"""ClusterFedVARP: its part of T12, the three ways to cluster, and errors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.aggregation_inputs import combined, facts, view
from tests.support.cluster_fedvarp_checks import check_golden, check_unbiased_over_all_subsets, grouped
from tests.support.fedvarp_checks import NEW, P, check_no_variance_once_all_were_heard, some
from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.aggregation import ClusterFedVARP, FedAvg, FedVARP
from turnout.aggregation.cluster_fedvarp import balanced_clusters, update_sketches
from turnout.array_types import Ids
from turnout.coordinator import Cadence, MemoryLimit, Plan
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.protocols import Aggregation
from turnout.selection import Uniform
from turnout.streams import Streams

NEVER = Cadence(every=10**9)
LOCAL = SGD(lr=0.1, batch_size=4, epochs=1)


def test_golden_two_clusters_by_hand() -> None:
    check_golden(ClusterFedVARP(num_clusters=2))


def test_golden_a_client_drawn_twice_counts_twice_in_its_clusters_memory() -> None:
    got = some(ClusterFedVARP(num_clusters=1), [1, 3], times=[2, 1])
    assert got.memory["table"].take(np.array([0])).numpy()[0] == pytest.approx((2 * NEW[1] + NEW[3]) / 3, abs=1e-12)


def test_property_unbiased_over_all_subsets_with_unequal_clusters() -> None:
    check_unbiased_over_all_subsets(ClusterFedVARP(num_clusters=2))


def test_property_the_weighted_form_is_unbiased() -> None:
    rule, q = ClusterFedVARP(num_clusters=2, weighting="ht"), np.array([0.4, 0.3, 0.2, 0.1])
    memory = grouped(rule, [0, 1, 1, 0])
    got = sum(q[i] * some(rule, [i], memory=memory, prob=[q[i]]).direction.numpy() for i in range(4))
    assert got == pytest.approx(P @ NEW, abs=1e-12)


ROUNDS = st.lists(
    st.tuples(st.sets(st.integers(0, 3), min_size=1), st.lists(st.floats(-9, 9), min_size=8, max_size=8)), max_size=5
)


@given(ROUNDS)
def test_identity_one_cluster_per_client_is_fedvarp(rounds: list[tuple[set[int], list[float]]]) -> None:
    theirs: dict[Any, Any]
    mine: dict[Any, Any]
    mine, theirs = {}, {}
    for clients, numbers in rounds:
        changes = np.reshape(numbers, (4, 2))
        one = some(ClusterFedVARP(num_clusters=4), sorted(clients), changes=changes, memory=mine)
        other = some(FedVARP(), sorted(clients), changes=changes, memory=theirs)
        assert one.direction.numpy() == pytest.approx(other.direction.numpy(), abs=1e-12)
        mine, theirs = one.memory, other.memory


@given(ROUNDS)
def test_identity_one_cluster_is_fedavg_in_every_round(rounds: list[tuple[set[int], list[float]]]) -> None:
    memory: dict[str, Any] = {}
    for clients, numbers in rounds:
        s, changes = sorted(clients), np.reshape(numbers, (4, 2))
        got = some(ClusterFedVARP(num_clusters=1), s, changes=changes, memory=memory)
        assert got.direction.numpy() == pytest.approx(changes[s].mean(0), abs=1e-12)
        memory = got.memory


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_identity_full_participation_is_fedavg(clusters: list[int]) -> None:
    rule = ClusterFedVARP(num_clusters=3)
    got = some(rule, range(4), memory=grouped(rule, clusters))
    assert got.direction.numpy() == pytest.approx(NEW.mean(0), abs=1e-12)


def test_identity_runs_reduce_to_fedvarp_and_fedavg(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(6)
    plan = Plan(local=LOCAL, rounds=5, selection=Uniform(cohort_size=2), evaluate=NEVER)

    def model(rule: Aggregation) -> Tensor:
        return run(task, replace(plan, aggregation=rule), engine=any_engine())[0].model

    alone, together = model(ClusterFedVARP(num_clusters=6)), model(ClusterFedVARP(num_clusters=1))
    assert torch.allclose(alone, model(FedVARP()), rtol=0, atol=1e-12)
    assert torch.allclose(together, model(FedAvg(weighting="mean")), rtol=0, atol=1e-12)
    assert not torch.allclose(alone, together)


def test_property_singletons_have_no_variance_once_all_were_heard() -> None:
    rule = ClusterFedVARP(num_clusters=4)
    check_no_variance_once_all_were_heard(rule, grouped(rule, [2, 0, 3, 1]))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_property_random_clusters_are_balanced_and_keyed(clients: int, wanted: int, seed: int) -> None:
    num_clusters = min(clients, wanted)
    clusters = balanced_clusters(clients, num_clusters, Streams(seed))
    sizes = np.bincount(clusters, minlength=num_clusters)
    assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(clusters, balanced_clusters(clients, num_clusters, Streams(seed)))


def partition(clusters: Ids) -> set[frozenset[int]]:
    """The groups of a clustering, whatever they are called."""
    return {frozenset(np.flatnonzero(clusters == q).tolist()) for q in set(clusters.tolist())}


def test_contract_label_clusters_group_clients_with_the_same_labels_whatever_their_size() -> None:
    counts = np.array([[9, 1, 0], [0, 0, 5], [90, 10, 0], [0, 0, 80], [0, 3, 0], [0, 33, 0]])
    rule = ClusterFedVARP(num_clusters=3, clusters="labels")
    here = view(counts.sum(1), 1, label_counts=counts)
    got = combined(rule, facts([0], total=6), [1.0], here)
    assert partition(got.memory["clusters"]) == {frozenset({0, 2}), frozenset({1, 3}), frozenset({4, 5})}


def test_contract_more_clusters_than_kinds_of_label_leaves_some_empty() -> None:
    counts = np.array([[5, 0], [5, 0], [0, 5], [0, 5]])
    rule = ClusterFedVARP(num_clusters=3, clusters="labels")
    got = combined(rule, facts([0], total=4), [2.0], view(counts.sum(1), 1, label_counts=counts))
    assert len(partition(got.memory["clusters"])) == 2
    assert got.direction.item() == pytest.approx(2.0)


WAYS = np.random.default_rng(0).normal(size=(2, 40))


def after_warm_up(rounds: list[int], warm_up: int = 3, heard: range = range(6)) -> Iterator[Any]:
    """The memories of a rule whose even and odd clients walk in two directions, over these rounds."""
    memory: dict[str, Any]
    rule, memory = ClusterFedVARP(num_clusters=2, clusters="updates", warm_up=warm_up), {}
    here, noise = view(np.ones(6), 40), np.random.default_rng(1)
    for round in rounds:
        clients = sorted(heard)[round % 2 :: 2] if round < warm_up else sorted(heard)
        delta = (
            WAYS[np.array(clients) % 2] * (1 + np.array(clients))[:, None] + noise.normal(size=(len(clients), 40)) / 9
        )
        memory = combined(rule, facts(clients, total=6), delta, replace(here, round=round), memory).memory
        yield memory


def test_contract_update_clusters_find_who_walks_the_same_way_and_then_stay() -> None:
    *before, after, later = after_warm_up([1, 2, 3, 4])
    assert partition(after["clusters"]) == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}
    first = balanced_clusters(6, 2, Streams(0))
    assert partition(first) != partition(after["clusters"])
    assert all(np.array_equal(memory["clusters"], first) for memory in before)
    assert set(after) == {"clusters"}  # the memories start again at 0
    assert np.array_equal(later["clusters"], after["clusters"])
    assert "sketches" not in later


def test_contract_a_warm_up_round_in_which_nobody_came_is_made_up_for() -> None:
    *_, last = after_warm_up([1, 2, 5])
    assert partition(last["clusters"]) == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}


def test_contract_clients_never_heard_stay_in_their_random_cluster() -> None:
    *_, last = after_warm_up([1, 2, 3], heard=range(4))
    assert np.array_equal(last["clusters"][4:], balanced_clusters(6, 2, Streams(0))[4:])


def test_property_sketches_keep_directions() -> None:
    rng = np.random.default_rng(3)
    near = rng.normal(size=2000)
    rows = np.stack([near, 5 * near, -near, rng.normal(size=2000), np.zeros(2000)])
    sketch = update_sketches(torch.from_numpy(rows), Streams(0))
    cosines = sketch @ sketch.T
    assert cosines[0, 1] == pytest.approx(1)
    assert cosines[0, 2] == pytest.approx(-1)
    assert abs(cosines[0, 3]) < 0.6
    assert (sketch[4] == 0).all()


@pytest.mark.parametrize("clusters", ["random", "updates"])
def test_engine_a_run_ends_the_same_on_every_engine_and_in_a_file(
    clusters: Any, any_engine: Callable[[], Engine]
) -> None:
    task = blob_task(8)
    more: dict[str, Any] = {"warm_up": 2} if clusters == "updates" else {}
    rule = ClusterFedVARP(num_clusters=3, clusters=clusters, **more)
    plan = Plan(local=LOCAL, rounds=5, selection=Uniform(cohort_size=3), aggregation=rule, evaluate=NEVER)
    here, records = run(task, plan)
    there, _ = run(task, replace(plan, memory=MemoryLimit(table_mib=0)), engine=any_engine())
    assert there.aggregation["table"].file is not None
    assert torch.allclose(here.model, there.model, rtol=0, atol=1e-12)
    assert records[-1].metrics["memory_bytes"] == (3 + 1) * 8 * here.model.numel()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clusters": 0}, r"num_clusters >= 1; got 0\. Change aggregation\.num_clusters"),
        ({"num_clusters": 2, "warm_up": 0}, r"warm_up >= 1; got 0\. Change aggregation\.warm_up"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterFedVARP(**settings)


def test_error_more_clusters_than_clients_says_the_most_there_can_be() -> None:
    with pytest.raises(ConfigError, match=r"got 9 > 4\. Set aggregation\.num_clusters to 4 or less"):
        some(ClusterFedVARP(num_clusters=9), [0])
    with pytest.raises(ConfigError, match=r"got 9 > 6\. Set aggregation\.num_clusters to 6 or less"):
        run(blob_task(6), Plan(local=LOCAL, rounds=1, aggregation=ClusterFedVARP(num_clusters=9)))


def test_error_label_clusters_without_labels_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r'clusters = "labels" needs the label counts.*Set aggregation\.clusters'):
        some(ClusterFedVARP(num_clusters=2, clusters="labels"), [0])
