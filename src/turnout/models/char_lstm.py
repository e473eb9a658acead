"""CharLSTM: the LEAF benchmark's recurrent network for Shakespeare, which predicts the next character.

Intuition: two recurrent layers read the text from left to right, and the last hidden state predicts the next character.

    characters → embedding 8 → LSTM 256 → LSTM 256 → last hidden state → outputs

Reduces to: one recurrent layer when layers = 1.
Differs from the paper: PyTorch's LSTM has two biases per gate and TensorFlow's has one, so a vocabulary of 80 gives
819 920 parameters instead of 817 872.
Reference: Caldas et al. LEAF: a benchmark for federated settings. 2018. arXiv:1812.01097.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.initialise import build_initialised
from turnout.settings import Range, Width, rule


class LastStepLSTM(nn.Module):
    """Embedding, recurrent layers, and a linear layer on the last hidden state."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, num_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, text: Tensor) -> Tensor:
        """Return the outputs for a (samples, characters) tensor of character indices."""
        states = self.lstm(self.embedding(text))[0]
        outputs: Tensor = self.head(states[:, -1])
        return outputs


@rule("model")
class CharLSTM:
    """A stacked LSTM over characters."""

    embedding: Width = 8  # dimension of the character embedding, 1 or more; 8 is usual
    hidden: Width = 256  # number of units of each LSTM layer, 1 or more; 256 is usual
    layers: Annotated[int, Range(least=1, ceiling=1000)] = 2  # number of stacked LSTM layers, 1 or more; 2 is usual
    vocabulary: Width | None = None  # number of characters in the vocabulary, 1 or more; none is the number of outputs

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for sequences of character indices."""
        if len(example_shape) != 1 or example_shape[0] < 1:
            raise ConfigError(
                f"CharLSTM needs a sequence of characters per sample; got example shape {example_shape}. "
                'Use text (data.use = "shakespeare"), or set model.use = "cnn" for images.'
            )
        symbols = num_outputs if self.vocabulary is None else self.vocabulary
        sizes = (symbols, self.embedding, self.hidden, self.layers, num_outputs)
        return build_initialised(lambda: LastStepLSTM(*sizes), generator)
