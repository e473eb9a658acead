"""Distillation on the public set: what is asked of an engine, and what comes back. Plain values: no I/O.

Labels never take part: the public set has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.errors import ConfigError, UpdateError
from turnout.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Predict:
    """Ask for the outputs of models on samples of the public set."""

    round: int
    models: Tensor  # one row per model
    samples: Ids  # which of the public samples
    clients: Ids | None = None  # whose models they are, ascending, where they are clients' own
    cut: tuple[int, ...] | None = None  # the models are parts of the whole one, as in Fit

    def outputs(self, answer: Any) -> Tensor:
        """Return the outputs of an answer, (models, samples, classes); raise UpdateError if it does not fit."""
        found = answer.outputs if isinstance(answer, Predicted) else None
        shape = (len(self.models), len(self.samples))
        if not isinstance(found, Tensor) or tuple(found.shape[:2]) != shape:
            raise UpdateError(
                f"Predictions on the public set need one output per model and sample, {shape[0]} × {shape[1]}; the "
                f"engine returned {tuple(getattr(found, 'shape', ()))}. Change the engine."
            )
        if found.dim() != 3 or found.shape[2] < 2:
            raise ConfigError(
                "Distillation compares models by their outputs for each class, two or more; this model has outputs of "
                f"shape {tuple(found.shape[2:])}. Use data and a model with classes.",
                setting="model",
            )
        return found.detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The answer to Predict."""

    outputs: Tensor  # (models, samples, classes), before any softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Distil:
    """Ask for models that are trained towards targets on samples of the public set, one by one.

    With z the outputs of a model for a sample and t its target, the loss of a sample is, times `strength`

        cross-entropy  −Σ_c t_c log softmax(z)_c        t need not sum to one
        squares        Σ_c (softmax(z)_c − t_c)²

    Mini-batches are keyed by (seed, purpose, round, client).
    """

    round: int
    streams: Streams
    models: Tensor  # one row per model
    samples: Ids  # which of the public samples
    targets: Tensor  # (models or 1, samples, classes); 1: the same for all models
    clients: Ids  # whose mini-batches each model uses; turnout.streams.SERVER for the server's own model
    settings: Mapping[str, float]  # of SGD: "lr" and, where it is above 0, "momentum"; the same for all models
    batch_size: int | None  # samples in a step; None: all of them
    steps: int  # of SGD
    loss: Literal["cross-entropy", "squares"] = "cross-entropy"
    strength: float = 1.0
    purpose: str = "distillation"
    cut: tuple[int, ...] | None = None  # the models are parts of the whole one, as in Fit

    def rows(self, answer: Any) -> Tensor:
        """Return the models of an answer, one row each; raise UpdateError if it does not fit."""
        found = answer.models if isinstance(answer, Distilled) else None
        if not isinstance(found, Tensor) or found.shape != self.models.shape or found.dtype != self.models.dtype:
            raise UpdateError(
                f"Distillation needs models of shape {tuple(self.models.shape)} and type {self.models.dtype}; the "
                f"engine returned {tuple(getattr(found, 'shape', ()))}. Change the engine."
            )
        return found.detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled:
    """The answer to Distil."""

    models: Tensor  # after the last step, one row each
    gradients: int = 0  # per-sample gradients that it took


def one_hot(labels: Tensor, like: Tensor) -> Tensor:
    """Return class labels as rows of probabilities, with as many classes as another tensor and of its type."""
    return torch.nn.functional.one_hot(labels, like.shape[-1]).to(like.dtype)
