"""Federations in which some clients train on other labels."""

import numpy as np
import pytest
import torch

from tests.support.tasks import blob_federation, quadratic_task
from turnout.attacks import LabelFlip
from turnout.data import Digits, SyntheticOnDemand
from turnout.data.relabelled import relabelled
from turnout.errors import DataError
from turnout.streams import Streams

FLIP = LabelFlip(fraction=0.5).relabel


def who(federation, *clients):
    mask = np.zeros(federation.num_clients, dtype=bool)
    mask[list(clients)] = True
    return mask


def test_golden_only_the_labels_of_attackers_change():
    before = blob_federation(5)
    after = relabelled(before, who(before, 1, 3), FLIP)
    for client in range(5):
        was, now = before.train.of(client), after.train.of(client)
        assert torch.equal(was.x, now.x)
        assert torch.equal(now.y, 2 - was.y if client in (1, 3) else was.y)


def test_contract_the_federation_itself_is_untouched_and_inputs_are_shared():
    before = blob_federation(5)
    labels = before.train.y.clone()
    after = relabelled(before, who(before, 0, 1, 2, 3, 4), FLIP)
    assert torch.equal(before.train.y, labels)
    assert after.train.x.data_ptr() == before.train.x.data_ptr()
    assert after.test is before.test


def test_contract_a_shared_store_holds_its_hold_outs_and_server_samples_as_they_were():
    before = Digits(clients=10, holdout=0.2, server_samples=30).build(Streams(0))
    after = relabelled(before, who(before, 2), FLIP)
    assert before.train.order is not None  # clients are ranges of an index: labels lie scattered
    assert torch.equal(after.train.of(2).y, 9 - before.train.of(2).y)
    assert torch.equal(after.train.of(3).y, before.train.of(3).y)
    for client in range(10):
        assert torch.equal(after.holdout.of(client).y, before.holdout.of(client).y)
    assert torch.equal(after.server.y, before.server.y)


def test_contract_samples_made_when_asked_are_changed_when_asked():
    before = SyntheticOnDemand(clients=6, samples=4).build(Streams(0))
    after = relabelled(before, who(before, 1, 5), FLIP)
    asked = np.array([0, 1, 4, 5])
    was, now = before.train.fetch(asked), after.train.fetch(asked)
    assert torch.equal(was.x, now.x)
    assert now.y.tolist() == [9 - y if at // 4 in (1, 3) else y for at, y in enumerate(was.y.tolist())]
    assert after.sizes.tolist() == before.sizes.tolist()


def test_error_data_without_classes_is_refused():
    federation = quadratic_task([1.0, 1.0], [[1.0], [2.0]], [1, 1]).federation
    with pytest.raises(
        DataError, match=r"An attack on labels needs data with classes; clients has none\. Choose another"
    ):
        relabelled(federation, who(federation, 0), FLIP)
