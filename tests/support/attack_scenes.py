"""What attackers see, made up by hand; and every attack with settings that suit any case."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from turnout.attacks import (
    FreeRider,
    Gaussian,
    InnerProduct,
    LabelFlip,
    LittleIsEnough,
    ModelReplacement,
    NaN,
    ScaledUpdate,
    SignFlip,
)
from turnout.attacks.attack import Seen
from turnout.streams import Streams

FORGERS: dict[str, type[Any]] = {
    "sign-flip": SignFlip,
    "scaled-update": ScaledUpdate,
    "gaussian": Gaussian,
    "nan": NaN,
    "free-rider": FreeRider,
    "model-replacement": ModelReplacement,
    "inner-product": InnerProduct,
    "little-is-enough": LittleIsEnough,
}
ATTACKS: dict[str, type[Any]] = {**FORGERS, "label-flip": LabelFlip}


def scene(
    delta: ArrayLike,
    hostile: ArrayLike,
    *,
    clients: ArrayLike | None = None,
    model: list[float] | None = None,
    round: int = 1,
    seed: int = 0,
) -> Seen:
    """Return what attackers see of these rows; `hostile` says which are theirs."""
    rows = torch.as_tensor(np.array(delta, dtype=float))
    return Seen(
        round=round,
        streams=Streams(seed),
        model=torch.ones(rows.shape[1], dtype=rows.dtype) if model is None else torch.tensor(model, dtype=rows.dtype),
        clients=np.arange(len(rows)) if clients is None else np.asarray(clients),
        hostile=np.asarray(hostile, dtype=bool),
        delta=rows,
    )
