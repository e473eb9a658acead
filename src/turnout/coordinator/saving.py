"""A state as named tensors and a JSON value, and back: nothing else is needed to go on."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.coordinator.plan import State
from turnout.memory import RowTable
from turnout.protocols import Memory

PARTS = ("server", "aggregation", "selection", "filtering", "local", "members", "flight")


def saved(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state as tensors and a JSON value."""
    tensors = {"model": state.model, "last_losses": torch.from_numpy(state.last_losses)}
    if state.buffers is not None:
        tensors["buffers"] = state.buffers
    kinds: dict[str, Any] = {}
    for part in PARTS:
        for name, value in getattr(state, part).items():
            _put(f"{part}.{name}", value, tensors, kinds)
    rest = {"round": state.round, "restart": state.restart, "sim_seconds": state.sim_seconds, "kinds": kinds}
    return tensors, rest


def restored(tensors: dict[str, Tensor], rest: dict[str, Any]) -> State:
    """Return the state that `saved` made these of."""
    parts: dict[str, Memory] = {part: {} for part in PARTS}
    for name, kind in rest["kinds"].items():
        part, _, key = name.partition(".")
        parts[part][key] = _get(name, kind, tensors)
    return State(
        model=tensors["model"],
        buffers=tensors.get("buffers"),
        round=rest["round"],
        restart=rest["restart"],
        sim_seconds=rest["sim_seconds"],
        last_losses=tensors["last_losses"].numpy().copy(),
        **parts,
    )


def _put(name: str, value: Any, tensors: dict[str, Tensor], kinds: dict[str, Any]) -> None:
    if isinstance(value, Tensor):
        tensors[name], kinds[name] = value, {"is": "tensor"}
    elif isinstance(value, np.ndarray):
        tensors[name], kinds[name] = torch.from_numpy(value.copy()), {"is": "array"}
    elif isinstance(value, RowTable):
        ids = np.flatnonzero(value.seen)
        tensors[f"{name}.ids"], tensors[f"{name}.rows"] = torch.from_numpy(ids), value.take(ids)
        kinds[name] = {"is": "table", "rows": value.num_rows, "budget": value.budget}
    else:
        kinds[name] = {"is": "value", "value": value}


def _get(name: str, kind: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    if kind["is"] == "tensor":
        return tensors[name]
    if kind["is"] == "array":
        return tensors[name].numpy().copy()
    if kind["is"] == "table":
        table = RowTable(kind["rows"], tensors["model"], kind["budget"])
        table.put(tensors[f"{name}.ids"].numpy(), tensors[f"{name}.rows"])
        return table
    return kind["value"]
