"""Per-sample losses: functions of (output, target) that return one value per sample.

Any such function works as `loss=`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
FEW = 32  # up to so many classes, without gradients, logsumexp is several times as fast as torch's cross_entropy


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Return −log softmax(output)[target] for each sample; also the loss of next-character prediction."""
    if output.dim() == 2 and output.shape[1] <= FEW and not torch.is_grad_enabled():
        return output.logsumexp(1) - output.gather(1, target[:, None]).squeeze(1)
    return F.cross_entropy(output, target, reduction="none")


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Return ‖output − target‖² for each sample."""
    return (output - target.view_as(output)).square().flatten(1).sum(1)


def quadratic(output: Tensor, target: Tensor) -> Tensor:
    """Return ½ h‖x‖² − eᵀx for each sample, where target is (h, e₁, …, e_d) and output is x."""
    curvature, linear = target[:, 0], target[:, 1:]
    return 0.5 * curvature * output.square().sum(1) - (linear * output).sum(1)


@dataclass(frozen=True, slots=True)
class Distilled:
    """The loss of a model, plus the cross-entropy of a part of it against the model's own predictions.

        L(f, y) − Σ_c softmax(f)_c log softmax(f_part)_c        with softmax(f) as a constant

    The first half of the outputs are the model's, the second half the part's.
    """

    loss: Loss

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the sum for each sample."""
        whole, part = output.chunk(2, 1)
        return self.loss(whole, target) - (whole.detach().softmax(1) * part.log_softmax(1)).sum(1)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error, "quadratic": quadratic}


def correct(output: Tensor, target: Tensor) -> Tensor:
    """Return 1 for each sample whose largest output is the target class, else 0."""
    return (output.argmax(-1) == target).to(torch.float64)
