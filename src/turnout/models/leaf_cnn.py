"""LeafCNN: the LEAF benchmark's network for FEMNIST, which is the FedAvg network with 2048 hidden units.

Intuition: 62 classes of handwriting need a wider hidden layer than ten digits.

    conv 5×5, 32, same → ReLU → pool 2 → conv 5×5, 64, same → ReLU → pool 2 → 2048 → ReLU → outputs

Reduces to: CNN with dense = 2048.
Reference: Caldas et al. LEAF: a benchmark for federated settings. 2018. arXiv:1812.01097.
"""

import torch
from torch import nn

from turnout.models.cnn import same_cnn
from turnout.models.initialise import build_initialised
from turnout.models.shapes import image_size
from turnout.settings import rule


@rule("model")
class LeafCNN:
    """Two convolutions and one hidden layer of 2048 units. No settings."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("LeafCNN", example_shape, least=4)
        return build_initialised(lambda: same_cnn(image, 2048, num_outputs), generator)
