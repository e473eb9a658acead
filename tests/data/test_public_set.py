"""The public set: inputs without labels, drawn from the clients or from the test set."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from turnout.data import Digits, from_clients, from_dataset
from turnout.data.assemble import assemble
from turnout.data.digest import federation_digest
from turnout.data.federation import Federation, Held, Samples
from turnout.errors import ConfigError, DataError
from turnout.streams import Streams


def build(**settings_: Any) -> Federation:
    """Return four clients of ten samples, whose input names their row."""
    store = Samples(torch.arange(40.0)[:, None], torch.arange(40) % 4)
    parts = list(np.arange(40).reshape(4, 10))
    return assemble(name="toy", store=store, parts=parts, streams=Streams(3), num_classes=4, **settings_)


def rows(x: Tensor | None) -> list[int]:
    return [] if x is None else x[:, 0].long().tolist()


def held(federation: Federation) -> Held:
    assert isinstance(federation.train, Held)
    return federation.train


@given(public=st.integers(0, 20), server=st.integers(0, 16))
def test_property_every_sample_has_one_place(public: int, server: int) -> None:
    made = build(public_samples=public, server_samples=server, holdout=0.2)
    places = rows(made.public) + rows(made.server.x if made.server else None)
    for client in range(4):
        places += rows(held(made).of(client).x) + (rows(made.holdout.of(client).x) if made.holdout else [])
    assert sorted(places) == list(range(40))
    assert len(rows(made.public)) == public
    assert made.sizes.min() >= 1


def test_contract_the_draw_has_a_stream_of_its_own() -> None:
    both, server = build(public_samples=10, server_samples=10), build(server_samples=10)
    assert both.server is not None
    assert server.server is not None
    assert torch.equal(both.server.x, server.server.x)
    assert rows(build(public_samples=10).public) != rows(server.server.x)


def test_contract_without_a_public_set_nothing_changes() -> None:
    assert build().public is None
    assert federation_digest(build(public_samples=0)) == federation_digest(build())
    assert federation_digest(build(public_samples=4)) != federation_digest(build())


def test_contract_the_public_set_moves_with_the_federation_and_is_named() -> None:
    moved = build(public_samples=7).to(torch.device("cpu"))
    assert len(rows(moved.public)) == 7
    assert "7 public" in repr(moved)


@pytest.mark.parametrize("origin", ["clients", "test"])
def test_contract_digits_have_a_public_set_from_either_origin(origin: str) -> None:
    more: dict[str, Any] = {"public_samples": 30, "public_from": origin}
    plain, made = Digits(clients=5).build(Streams(0)), Digits(clients=5, **more).build(Streams(0))
    assert made.public is not None
    assert plain.test is not None
    assert made.test is not None
    assert len(made.public) == 30
    assert (len(plain.test) - len(made.test), int(plain.sizes.sum() - made.sizes.sum())) == (
        (0, 30) if origin == "clients" else (30, 0)
    )


def test_contract_inputs_are_given_in_python() -> None:
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    by_client = from_clients([(x, y)], public=np.ones((4, 3)))
    assert by_client.public is not None
    assert by_client.public.dtype == x.dtype
    by_id = from_dataset(torch.utils.data.TensorDataset(x, y), [0, 0, 0, 1, 1, 1], public=torch.ones(4, 3))
    assert by_id.public is not None
    assert len(by_id.public) == 4


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (torch.ones(4, 2), r"shape of the training inputs, \(3,\) a sample; got 4 of shape \(2,\)"),
        (torch.ones(0, 3), r"must be one or more"),
        (torch.full((4, 3), torch.nan), r"public inputs must be finite"),
    ],
)
def test_error_public_inputs_that_do_not_fit(public: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_clients([(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1]))], public=public)


def test_error_too_many_public_samples() -> None:
    with pytest.raises(DataError, match=r"public_samples must leave every client one sample; got 37 of 40.*at most 36"):
        build(public_samples=37)
    with pytest.raises(DataError, match=r"Change data.public_samples, or set data.public_from to"):
        Digits(clients=5, public_samples=9000, public_from="test").build(Streams(0))
    with pytest.raises(ConfigError, match=r'public_from = "test" needs public_samples >= 1; got 0'):
        Digits(clients=5, public_from="test")
