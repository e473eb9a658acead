"""COMET: clients that exchange predictions in place of a model."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.families import LOCAL, family_task
from tests.support.personal_runs import kept, personal_run
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.distillation import soft_loss
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.models import MLP
from turnout.personal import Codistil
from turnout.personal.codistil import cluster_means, clusters_of, nearest_centroids
from turnout.selection import Uniform
from turnout.streams import Streams


def task_of(**more: Any) -> Task:
    return family_task(MLP(hidden=(4,)), **more)


def comet(rule: Codistil, task: Task | None = None, **more: Any) -> Any:
    return personal_run(task_of() if task is None else task, rule, local=LOCAL, **more)


def test_golden_two_clusters_that_are_far_apart() -> None:
    points = np.array([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0], [9.0, 8.9]])
    for seed in range(5):
        found = clusters_of(points, 2, np.random.default_rng(seed))
        assert (found[0] == found[2], found[1] == found[3], found[0] == found[1]) == (True, True, False)
    means = cluster_means(torch.tensor(points), np.array([0, 1, 0, 1]))
    assert torch.allclose(means, torch.tensor([[0.05, 0.0], [9.0, 8.95]] * 2).double())


@given(count=st.integers(1, 8), clients=st.integers(1, 8), seed=st.integers(0, 9))
@settings(max_examples=30)
def test_property_every_client_is_nearest_to_its_own_cluster(count: int, clients: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(clients, 3))
    found = clusters_of(points, count, np.random.default_rng(seed))
    if count >= clients:
        assert found.tolist() == list(range(clients))
    elif count == 1:
        assert not found.any()
    else:
        assert set(found) <= set(range(count))
    alike = clusters_of(np.zeros((clients, 3)), count, np.random.default_rng(seed))
    assert len(alike) == clients


def test_identity_without_strength_every_client_trains_alone() -> None:
    state, records = comet(Codistil(strength=0.0), rounds=2)
    other, _ = comet(Codistil(strength=0.0, clusters=1, samples=3, loss="l2"), rounds=2)
    assert torch.equal(kept(state), kept(other))
    assert torch.equal(state.model, task_of().layout.flatten(task_of().module))
    moved, _ = comet(Codistil(clusters=1), rounds=2)
    assert not torch.equal(kept(moved), kept(state))
    assert records[-1].metrics["loss"] == records[-1].metrics["personal_loss"]
    assert "there is no shared model" in records[0].events[0]


def test_identity_with_one_cluster_for_each_client_nothing_pulls_at_first() -> None:
    how: dict[str, Any] = {"distil_steps": 1, "batch_size": 99, "lr": 5.0}
    alone, _ = comet(Codistil(strength=0.0), rounds=2)
    for loss in ("kl", "l2"):
        own, _ = comet(Codistil(clusters=6, loss=loss, **how), rounds=2)
        assert torch.allclose(kept(own), kept(alone), rtol=0, atol=1e-12)


def test_golden_one_cluster_pulls_towards_the_mean_prediction() -> None:
    task = task_of()
    how: dict[str, Any] = {"distil_steps": 1, "batch_size": 99, "lr": 0.5, "strength": 2.0}
    before, _ = comet(Codistil(strength=0.0), task, rounds=1)
    rows = kept(before)
    public = task.federation.public
    assert public is not None
    outputs = torch.stack([torch.func.functional_call(task.module, task.layout.views(row), (public,)) for row in rows])
    target = outputs.softmax(2).mean(0)
    flat = rows[2].clone().requires_grad_()
    z = torch.func.functional_call(task.module, task.layout.views(flat), (public,))
    (2.0 * -(target * z.log_softmax(1)).sum(1).mean()).backward()
    expected = rows[2] - 0.5 * flat.grad  # type: ignore[operator]
    one = SGD(lr=1e-300, steps=1, batch_size=4)
    after, _ = personal_run(task, Codistil(clusters=1, **how), local=one, rounds=2, state=before)
    assert torch.allclose(kept(after)[2], expected, rtol=0, atol=1e-10)


def test_golden_bytes_are_predictions_both_ways() -> None:
    _, records = comet(Codistil(samples=5), rounds=1, selection=Uniform(cohort_size=4))
    costs = records[1].costs
    assert (costs.bytes_up, costs.bytes_down) == (4 * 5 * 3 * 8, 4 * 5 * 3 * 8)  # clients, inputs, classes, float64
    assert costs.probe_evaluations == 4 * 5


def test_engine_engines_agree_and_a_run_goes_on_from_its_state() -> None:
    rule = Codistil(samples=7, batch_size=3)
    how: dict[str, Any] = {"selection": Uniform(cohort_size=4)}
    one, _ = comet(rule, rounds=3, engine=Sequential(), **how)
    other, _ = comet(rule, rounds=3, engine=Vectorised("cpu"), **how)
    assert torch.allclose(kept(one), kept(other), rtol=0, atol=1e-12)
    half, _ = comet(rule, rounds=2, **how)
    assert torch.equal(kept(comet(rule, rounds=3, state=half, **how)[0]), kept(one))


def test_error_what_it_needs_of_the_data() -> None:
    with pytest.raises(
        ConfigError, match=r"Codistil needs a public set; this federation has none. Set data.public_samp"
    ):
        comet(Codistil(), task_of(public=0))
    with pytest.raises(ConfigError, match=r"public set of 13 samples or more; this federation has 12"):
        comet(Codistil(samples=13))


def test_golden_centroids_of_each_sample() -> None:
    points = np.array([[0.1, 0.9], [0.2, 0.8], [0.9, 0.1], [0.7, 0.3]])
    for seed in range(5):
        found = nearest_centroids(points, 2, np.random.default_rng(seed))
        assert np.allclose(found, [[0.15, 0.85]] * 2 + [[0.8, 0.2]] * 2)
    assert np.array_equal(nearest_centroids(points, 4, np.random.default_rng(0)), points)
    assert np.allclose(nearest_centroids(points, 1, np.random.default_rng(0)), points.mean(0))


def test_identity_with_one_cluster_or_one_for_each_client_samples_are_clustered_as_clients() -> None:
    for count in (1, 6):
        one, _ = comet(Codistil(clusters=count), rounds=2)
        other, _ = comet(Codistil(clusters=count, cluster="samples"), rounds=2)
        assert torch.allclose(kept(one), kept(other), rtol=0, atol=1e-12)
    for engine in (Sequential(), Vectorised("cpu")):
        several, _ = comet(Codistil(clusters=2, samples=4, cluster="samples"), rounds=2, engine=engine)
        again, _ = comet(Codistil(clusters=2, samples=4), rounds=2, engine=engine)
        assert not torch.allclose(kept(several), kept(again), rtol=0, atol=1e-9)


def test_golden_clusters_of_samples_cost_every_centroid() -> None:
    for clusters, times in ((3, 3), (9, 4)):  # at most one centroid for each of the four clients
        _, records = comet(
            Codistil(samples=5, clusters=clusters, cluster="samples"), rounds=1, selection=Uniform(cohort_size=4)
        )
        assert (records[1].costs.bytes_up, records[1].costs.bytes_down) == (480, 480 * times)


def test_property_clusters_are_drawn_for_each_public_sample_whichever_others_there_are() -> None:
    rng = np.random.default_rng(0)
    predictions = torch.tensor(rng.dirichlet(np.ones(3), size=(8, 6)))
    here: Any = SimpleNamespace(streams=Streams(3), round=2)
    rule = Codistil(clusters=3, cluster="samples")
    every = rule._targets(here, np.arange(6), predictions)
    some = np.array([1, 4])
    assert torch.equal(rule._targets(here, some, predictions[:, some]), every[:, some])
    broken = predictions.clone()
    broken[2, 0, 0] = torch.nan
    left = rule._targets(here, np.arange(6), broken)
    others = [0, 1, 3, 4, 5, 6, 7]
    assert torch.isfinite(left[others]).all()
    assert torch.equal(left[2, 1:], predictions[2, 1:])


@given(order=st.permutations(range(6)), clusters=st.integers(1, 2), what=st.sampled_from(["clients", "samples"]))
@settings(max_examples=30)
def test_property_permuting_clients_permutes_nothing_else(order: list[int], clusters: int, what: Any) -> None:
    near, far = torch.tensor([0.9, 0.08, 0.02]).double(), torch.tensor([0.1, 0.2, 0.7]).double()
    shift = 0.01 * torch.arange(6).double()[:, None, None] * torch.tensor([1.0, -1.0, 0.0]).double()
    predictions = torch.stack([near, far, near, near, far, far])[:, None].expand(-1, 4, -1) + shift
    here: Any = SimpleNamespace(streams=Streams(0), round=1)
    rule = Codistil(clusters=clusters, cluster=what)
    found = rule._targets(here, np.arange(4), predictions)
    assert torch.allclose(rule._targets(here, np.arange(4), predictions[order]), found[order], rtol=0, atol=1e-12)
    assert not torch.allclose(found[0], found[1]) or clusters == 1


def test_golden_a_client_whose_predictions_are_not_finite_is_left_alone() -> None:
    predictions = torch.tensor([[[0.9, 0.1]], [[torch.nan, 0.5]], [[0.8, 0.2]], [[0.1, 0.9]]], dtype=torch.float64)
    here: Any = SimpleNamespace(streams=Streams(0), round=1)
    found = Codistil(clusters=2)._targets(here, np.arange(1), predictions)
    assert found[[0, 2]].tolist() == [[[pytest.approx(0.85), pytest.approx(0.15)]]] * 2
    assert found[3].tolist() == predictions[3].tolist()
    assert torch.isnan(found[1, 0, 0])


def test_golden_squared_differences_are_added_over_classes_and_averaged_over_samples() -> None:
    targets = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    loss = soft_loss(torch.zeros(2, 2), targets, "squares")  # predictions of one half: (¼ + ¼ + 0 + 0) / 2
    assert float(loss) == pytest.approx(0.25)
