"""The losses that are shipped."""

import pytest
import torch
import torch.nn.functional as F

from turnout.losses import FEW, cross_entropy


@pytest.mark.parametrize("classes", [2, 10, FEW, FEW + 1])
def test_identity_cross_entropy_is_torchs_with_gradients_and_without(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    output = 300 * torch.randn(50, classes, generator=generator, dtype=torch.float64)  # exp alone would overflow
    target = torch.randint(0, classes, (50,), generator=generator)
    expected = F.cross_entropy(output, target, reduction="none")
    with torch.no_grad():
        assert torch.allclose(cross_entropy(output, target), expected)
    assert torch.allclose(cross_entropy(output, target), expected)


def test_contract_a_loss_that_is_not_finite_stays_so() -> None:
    with torch.no_grad():
        assert cross_entropy(torch.tensor([[torch.nan, 0.0]]), torch.tensor([1])).isnan().all()
