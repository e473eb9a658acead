"""What the studies of SAFARI rest on: labels dealt evenly, and a coin that changes nothing when q = 1."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.runs import models_of
from turnout.errors import ConfigError
from turnout.reproduce import shipped
from turnout.reproduce.reading import loss_gap
from turnout.reproduce.safari import EvenLabels, covered_share
from turnout.study import Study, load_study

DIGITS = 'data={ use = "digits", clients = 10, server_samples = 100 }'
BY_LABEL = 'data.partition={ use = "turnout.reproduce.safari:EvenLabels", labels_per_client = 1 }'
LABELS = np.repeat(np.arange(10), 20)


def _study(name: str, *more: str) -> Study:
    return load_study(shipped()[name].file, [DIGITS, BY_LABEL, "evaluate.every=1", "seeds=2", *more])


@pytest.mark.parametrize("labels", [1, 2, 5, 10])
def test_property_every_client_has_p_labels_and_every_label_p_clients(labels: int) -> None:
    parts = EvenLabels(labels_per_client=labels).split(LABELS, 10, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))
    held = np.array([np.bincount(LABELS[part], minlength=10) for part in parts])
    assert ((held > 0).sum(axis=1) == labels).all()
    assert ((held > 0).sum(axis=0) == labels).all()
    assert (held.sum(axis=1) == 20).all()


def test_property_two_draws_deal_labels_differently() -> None:
    rule = EvenLabels(labels_per_client=1)
    first, second = (rule.split(LABELS, 10, np.random.default_rng(seed)) for seed in (0, 1))
    assert [LABELS[part[0]] for part in first] != [LABELS[part[0]] for part in second]


def test_error_clients_that_do_not_fit_the_labels() -> None:
    with pytest.raises(ConfigError, match=r"a multiple of it as clients; got 2 and 15"):
        EvenLabels(labels_per_client=2).split(LABELS, 15, np.random.default_rng(0))


def test_identity_q_one_is_fedavg_bit_for_bit() -> None:
    arms = _study("safari-table1").versions()
    fedavg, always = (replace(arms[name], rounds=20).run() for name in ("FedAvg", "q = 1"))
    for mine, theirs in zip(models_of(always).values(), models_of(fedavg).values(), strict=True):
        assert torch.equal(mine, theirs)


def test_identity_q_zero_never_asks_a_client() -> None:
    alone = replace(_study("safari-table1").versions()["server alone 100"], rounds=5).run().loaded
    assert (alone.rounds["asked"] == 0).all()
    assert (alone.rounds["gradient_evaluations"].iloc[1:6] == 32).all()


def test_golden_only_labels_of_those_who_came_are_heard() -> None:
    counts = np.arange(1.0, 11.0)
    loaded = replace(_study("safari-fig2").versions()["s = 4"], rounds=30).run().loaded
    arm = loaded.arms[0]
    for seed, share in enumerate(covered_share(loaded, arm, counts)):
        held = loaded.holdings(arm, seed)
        assert held is not None
        assert held.label_counts is not None
        absent = sorted(set(range(10)) - set(loaded.clients[loaded.clients["seed"] == seed]["client"]))
        assert len(absent) == 4
        missing = counts[np.argmax(held.label_counts[absent], axis=1)].sum()
        assert share == pytest.approx(1 - missing / counts.sum())


def test_golden_apart_is_the_largest_difference_over_common_rounds() -> None:
    study = _study("safari-fig2", "rounds=4")
    study = replace(study, arms=study.arms[:2])
    loaded = study.run().loaded
    losses = [
        loaded.rounds[loaded.rounds["arm"] == arm].pivot(index="seed", columns="round", values="loss").to_numpy()
        for arm in loaded.arms
    ]
    assert loss_gap(loaded, *loaded.arms).tolist() == np.abs(losses[0] - losses[1]).max(axis=1).tolist()
    assert (loss_gap(loaded, *loaded.arms) > 0).all()
