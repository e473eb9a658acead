"""The models that clients use after the last round, where these are not one shared model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from turnout.array_types import Bools, Ids

Stacks = Mapping[str, Tensor]  # by name of a parameter or buffer in the module: one value per client


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientModels:
    """Each client's model, by client id: its own values of some parameters, or the number of one of several models."""

    num_clients: int
    kinds: Mapping[str, Stacks] = field(default_factory=dict)  # what differs from the shared model, by kind
    trained: Bools | None = None  # whether each client ever trained what it keeps; None: nothing is kept
    number: Ids | None = None  # which of several models each client uses; None: there is one
    architecture: Ids | None = None  # number of each client's model in a family; None: all have the model of the study
    too_large: int = 0  # bytes that they take, where that is more than is stored
