"""The result of clients' local work where they also train models of their own, and the models that they use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from turnout.costs import Costs
from turnout.requests import Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The result of clients' local work: what they send, and what they keep for themselves."""

    sent: Trained  # the answer to the round's own training
    rows: Mapping[str, Tensor] = field(default_factory=dict)  # what each client keeps from here on, by table
    predictions: int = 0  # outputs of clients' own models on public samples
    bytes_up: int = 0  # that all clients sent beside updates
    bytes_down: int = 0  # that they received beside the model
    gradients: int = 0  # per-sample gradients that this took beside the round's own training

    @property
    def costs(self) -> Costs:
        """What this cost beside the round's own training."""
        return Costs(
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            gradient_evaluations=self.gradients,
            probe_evaluations=self.predictions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRows:
    """One model per client: parameters and, where clients have their own, running statistics."""

    parameters: Tensor  # one row per client
    buffers: Tensor | None = None  # one row per client; None: the shared model's for all
