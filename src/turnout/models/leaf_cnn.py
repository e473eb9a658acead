"""The LEAF benchmark's network for FEMNIST: the FedAvg network with a hidden layer of 2048.

Intuition: sixty-two classes of handwriting want a wider layer before the decision than ten digits do.

    conv 5×5, 32, same → ReLU → pool 2 → conv 5×5, 64, same → ReLU → pool 2 → 2048 → ReLU → outputs

Reduces to: CNN with dense = 2048.
Reference: Caldas et al. LEAF: a benchmark for federated settings. 2018. arXiv:1812.01097.
"""

import torch
from torch import nn

from turnout.models.cnn import same_cnn
from turnout.models.initialise import drawn
from turnout.models.shapes import image_size
from turnout.settings import rule


@rule("model")
class LeafCNN:
    """Two convolutions and one hidden layer of 2048. No settings."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("LeafCNN", example_shape, least=4)
        return drawn(lambda: same_cnn(image, 2048, num_outputs), generator)
