"""EmnistCNN: the convolutional network with dropout of the FedOpt experiments on EMNIST.

Intuition: two convolutions extract features, pooling reduces them, and dropout prevents overfitting.

    conv 3×3, 32 → ReLU → conv 3×3, 64 → ReLU → pool 2 → dropout ¼ → 128 → ReLU → dropout ½ → outputs

Reduces to: the same network without dropout at evaluation.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.shapes import image_size
from turnout.settings import rule


def dropout_cnn(image: tuple[int, int, int], num_outputs: int) -> nn.Sequential:
    """Return two unpadded 3×3 convolutions, one pooling step and two linear layers, with dropout."""
    channels, height, width = image
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_outputs),
    )


@rule("model")
class EmnistCNN:
    """Two convolutions and one hidden layer, with dropout. No settings."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("EmnistCNN", example_shape, least=6)
        return build_initialised(lambda: dropout_cnn(image, num_outputs), generator)
