"""Federations in which some clients train on other labels."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.support.tasks import blob_federation, holdout_of, quadratic_task, server_of, train_of
from turnout.attacks import LabelFlip
from turnout.data import Digits, Federation, SyntheticOnDemand
from turnout.data.relabelled import relabelled
from turnout.errors import DataError
from turnout.streams import Streams

FLIP = LabelFlip(fraction=0.5).relabel


def who(federation: Federation, *clients: Any) -> NDArray[np.bool_]:
    mask = np.zeros(federation.num_clients, dtype=bool)
    mask[list(clients)] = True
    return mask


def test_golden_only_the_labels_of_attackers_change() -> None:
    before = blob_federation(5)
    after = relabelled(before, who(before, 1, 3), FLIP)
    for client in range(5):
        was, now = train_of(before).of(client), train_of(after).of(client)
        assert torch.equal(was.x, now.x)
        assert torch.equal(now.y, 2 - was.y if client in (1, 3) else was.y)


def test_contract_the_federation_itself_is_untouched_and_inputs_are_shared() -> None:
    before = blob_federation(5)
    labels = train_of(before).y.clone()
    after = relabelled(before, who(before, 0, 1, 2, 3, 4), FLIP)
    assert torch.equal(train_of(before).y, labels)
    assert train_of(after).x.data_ptr() == train_of(before).x.data_ptr()
    assert after.test is before.test


def test_contract_a_shared_store_holds_its_hold_outs_and_server_samples_as_they_were() -> None:
    before = Digits(clients=10, holdout=0.2, server_samples=30).build(Streams(0))
    after = relabelled(before, who(before, 2), FLIP)
    assert train_of(before).order is not None  # clients are ranges of an index: labels lie scattered
    assert torch.equal(train_of(after).of(2).y, 9 - train_of(before).of(2).y)
    assert torch.equal(train_of(after).of(3).y, train_of(before).of(3).y)
    for client in range(10):
        assert torch.equal(holdout_of(after).of(client).y, holdout_of(before).of(client).y)
    assert torch.equal(server_of(after).y, server_of(before).y)


def test_contract_samples_made_when_asked_are_changed_when_asked() -> None:
    before = SyntheticOnDemand(clients=6, samples=4).build(Streams(0))
    after = relabelled(before, who(before, 1, 5), FLIP)
    asked = np.array([0, 1, 4, 5])
    was, now = before.train.fetch(asked), after.train.fetch(asked)
    assert torch.equal(was.x, now.x)
    assert now.y.tolist() == [9 - y if at // 4 in (1, 3) else y for at, y in enumerate(was.y.tolist())]
    assert after.sizes.tolist() == before.sizes.tolist()


def test_error_data_without_classes_is_refused() -> None:
    federation = quadratic_task([1.0, 1.0], [[1.0], [2.0]], [1, 1]).federation
    with pytest.raises(
        DataError, match=r"An attack on labels needs data with classes; clients has none\. Choose another"
    ):
        relabelled(federation, who(federation, 0), FLIP)
