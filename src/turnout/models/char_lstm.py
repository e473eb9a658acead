"""The LEAF benchmark's recurrent network for Shakespeare: read a window of characters, predict the next.

Intuition: two recurrent layers read the text from left to right, and the last state says what comes next.

    characters → embed 8 → LSTM 256 → LSTM 256 → the last step → outputs

Reduces to: one recurrent layer when layers = 1.
Differs from the paper: PyTorch's LSTM has two biases per gate where TensorFlow's has one, so that 80 characters give
819 920 parameters in place of 817 872.
Reference: Caldas et al. LEAF: a benchmark for federated settings. 2018. arXiv:1812.01097.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.initialise import drawn
from turnout.settings import Range, Width, rule


class LastStepLSTM(nn.Module):
    """Embedding, recurrent layers, and a linear layer on the last step."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, num_outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, text: Tensor) -> Tensor:
        """Return the outputs for (samples, characters) of character numbers."""
        states = self.lstm(self.embedding(text))[0]
        outputs: Tensor = self.head(states[:, -1])
        return outputs


@rule("model")
class CharLSTM:
    """A stacked LSTM over characters."""

    embedding: Width = 8  # numbers that stand for a character
    hidden: Width = 256  # units of each layer
    layers: Annotated[int, Range(least=1, ceiling=1000)] = 2  # of LSTM, one on the other
    vocabulary: Width | None = None  # how many characters there are; left out, as many as outputs

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for sequences of character numbers."""
        if len(example_shape) != 1 or example_shape[0] < 1:
            raise ConfigError(
                f"CharLSTM needs a sequence of characters per sample; got example shape {example_shape}. "
                'Use text (data.use = "shakespeare"), or set model.use = "cnn" for images.'
            )
        symbols = num_outputs if self.vocabulary is None else self.vocabulary
        sizes = (symbols, self.embedding, self.hidden, self.layers, num_outputs)
        return drawn(lambda: LastStepLSTM(*sizes), generator)
