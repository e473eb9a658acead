"""Measuring a direction against everyone's leaves the run as it was, and the measure is what its formula says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.runs import models_of
from turnout.aggregation import ClusterFedVARP, FedAvg, FedVARP
from turnout.array_types import Floats
from turnout.errors import ConfigError
from turnout.protocols import Aggregation
from turnout.reproduce.direction import Sampled

K = 3
RULES: dict[str, tuple[Aggregation, Sampled]] = {
    "FedAvg": (FedAvg(weighting="mean"), Sampled(cohort_size=K)),
    "FedVARP": (FedVARP(), Sampled(cohort_size=K, remembers="clients")),
    "ClusterFedVARP": (
        ClusterFedVARP(num_clusters=4, clusters="labels"),
        Sampled(cohort_size=K, remembers="clusters", num_clusters=4, clusters="labels"),
    ),
}
STUDY = to.Study(
    data=to.data.Digits(clients=12, partition=to.data.partition.Shards(per_client=1)),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.05, batch_size=10, steps=2),
    rounds=12,
    seeds=2,
)


@pytest.mark.parametrize("name", list(RULES))
def test_identity_measured_or_not_the_run_is_the_same(name: str) -> None:
    rule, measured = RULES[name]
    plain = replace(STUDY, selection=to.selection.Uniform(cohort_size=K), aggregation=rule).run()
    watched = replace(STUDY, aggregation=measured).run()
    for mine, theirs in zip(models_of(watched).values(), models_of(plain).values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("remembers", ["nothing", "clients"])
def test_identity_a_cohort_of_everyone_has_no_error(remembers: str) -> None:
    rule = Sampled(cohort_size=12, remembers=remembers)  # type: ignore[arg-type]
    rounds = replace(STUDY, aggregation=rule).run().loaded.rounds
    assert rounds["direction_error"].max() < 1e-10
    assert rounds["direction_size"].min() > 1e-4


def test_golden_the_first_error_is_the_distance_of_a_cohort_from_everyone() -> None:
    one_round = replace(STUDY, rounds=1, seeds=1)
    everyone = _change(replace(one_round, aggregation=FedAvg(weighting="mean")))
    some = replace(one_round, selection=to.selection.Uniform(cohort_size=K), aggregation=FedAvg(weighting="mean"))
    found = replace(one_round, aggregation=Sampled(cohort_size=K)).run().loaded.rounds["direction_error"].iloc[-1]
    assert found == pytest.approx(np.square(_change(some) - everyone).sum(), rel=1e-4)


def test_error_clusters_without_a_number() -> None:
    with pytest.raises(ConfigError, match=r"needs num_clusters with remembers = \"clusters\""):
        Sampled(cohort_size=K, remembers="clusters")


def _change(study: to.Study) -> Floats:
    """Return what one round changed; the model starts at zero."""
    return next(iter(models_of(study.run()).values())).double().numpy()
