import pytest
import torch
from torch import nn

from turnout.engine.vectorised import frozen_linear
from turnout.engine.vectorised.frozen_linear import FrozenLinear, frozen


@pytest.mark.parametrize("shape", [(500, 256), (20, 32, 256), (3, 256)])
@pytest.mark.parametrize("bias", [True, False])
def test_engine_a_frozen_layer_gives_the_outputs_and_gradients_of_its_own(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(256, 128, bias=bias).requires_grad_(False)
    h = torch.randn(shape, requires_grad=True)
    errors = torch.randn(*shape[:-1], 128)
    (wanted,) = torch.autograd.grad(layer(h), h, errors)
    out = frozen(layer)(h)
    (found,) = torch.autograd.grad(out, h, errors)
    torch.testing.assert_close(out, layer(h), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_engine_doubles_stay_exact() -> None:
    layer = nn.Linear(256, 128).requires_grad_(False).double()
    h = torch.randn(500, 256, dtype=torch.float64)
    assert torch.equal(frozen(layer)(h), layer(h))


def test_engine_without_onednn_the_layer_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_linear, "HAS_ONEDNN", False)
    layer = nn.Linear(256, 128).requires_grad_(False)
    h = torch.randn(500, 256)
    assert torch.equal(frozen(layer)(h), layer(h))


def test_engine_other_layers_are_not_replaced() -> None:
    class Own(nn.Linear):
        pass

    own = Own(4, 4)
    assert frozen(own) is own
    assert isinstance(frozen(nn.Linear(4, 4)), FrozenLinear)
