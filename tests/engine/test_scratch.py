"""A worker's memory: used again, as large as was ever needed, and not kept where it is very large."""

import pytest
import torch

from turnout.engine.vectorised import scratch as module
from turnout.engine.vectorised.scratch import Scratch


def test_contract_a_buffer_is_the_same_memory_again_while_it_fits() -> None:
    held, like = Scratch(), torch.zeros(1)
    large = held.take("a", (4, 5), like)
    assert held.take("a", (3, 2), like).data_ptr() == large.data_ptr()
    assert held.take("b", (3, 2), like).data_ptr() != large.data_ptr()
    assert held.take("a", (5, 5), like).data_ptr() != large.data_ptr()
    counts = held.take("a", (4,), torch.zeros(1, dtype=torch.int64))
    assert (counts.dtype, counts.shape) == (torch.int64, (4,))


def test_contract_what_is_very_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 40)
    held, like = Scratch(), torch.zeros(1)
    assert held.take("a", (11,), like).shape == (11,)
    assert held.buffers == {}
    held.take("a", (10,), like)
    assert list(held.buffers) == ["a"]
