"""A state as named tensors and a JSON value, and back. Tables of rows are described only: they may outgrow RAM."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.coordinator.plan import State
from turnout.errors import ConfigError
from turnout.protocols import Memory
from turnout.row_table import RowTable
from turnout.rows import is_finite
from turnout.untrusted_input import MAX_COUNT, count_of

MOST_ROWS, MOST_BYTES = 1 << 27, 1 << 43  # of a table: as many clients as a journal takes, and a file that can be
OWN_TABLE = "world.store personal "  # begins the name of a table of a part of the model, of buffers, or one number
OPTIONAL = ("measured", "models", "measured_models")  # tensors that a state may have beside its model
PARTS = ("server", "aggregation", "selection", "filtering", "local", "members", "assignment", "jobs", "world")


def saved(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state as tensors and a JSON value, all but the rows of its tables."""
    tensors = {"model": state.model, "last_losses": torch.from_numpy(state.last_losses)}
    if state.buffers is not None:
        tensors["buffers"] = state.buffers
    for name in OPTIONAL:
        if (value := getattr(state, name)) is not None:
            tensors[name] = value
    kinds: dict[str, Any] = {}
    for part in PARTS:
        for name, value in getattr(state, part).items():
            _put(f"{part}.{name}", value, tensors, kinds)
    rest = {"round": state.round, "restart": state.restart, "kinds": kinds}
    return tensors, rest


def restored(tensors: dict[str, Tensor], rest: dict[str, Any], start: State) -> State:
    """Return the state that `saved` made these of; its tables have no rows yet.

    Raises a LookupError, TypeError or ValueError where it is none that could follow this start.
    """
    parts: dict[str, Memory] = {part: {} for part in PARTS}
    losses = _fitting("last_losses", tensors["last_losses"], torch.from_numpy(start.last_losses))
    model = _finite("model", tensors["model"], start.model)
    for name, kind in rest["kinds"].items():
        part, _, key = name.partition(".")
        parts[part][key] = _get(name, kind, tensors)
    _check_seconds(parts["world"].get("seconds", 0.0))
    if (start.buffers is None) != ("buffers" not in tensors):
        raise ValueError("buffers of another model")
    return State(
        model=model,
        buffers=None if start.buffers is None else _finite("buffers", tensors["buffers"], start.buffers),
        measured=_finite("measured", tensors["measured"], start.model) if "measured" in tensors else None,
        models=None if start.models is None else _finite("models", tensors["models"], start.models),
        measured_models=_measured_models(tensors, start),
        round=count_of(rest["round"], "round"),
        restart=count_of(rest["restart"], "restart"),
        last_losses=losses.cpu().numpy().copy(),
        **parts,
    )


def _measured_models(tensors: dict[str, Tensor], start: State) -> Tensor | None:
    """Return what is measured of several models, where it is not the models themselves."""
    if start.models is None or "measured_models" not in tensors:
        return None
    return _finite("measured_models", tensors["measured_models"], start.models)


def _fitting(name: str, value: Tensor, like: Tensor) -> Tensor:
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ValueError(f"{name} of {tuple(value.shape)} {value.dtype}, not {tuple(like.shape)} {like.dtype}")
    return value


def _finite(name: str, value: Tensor, like: Tensor) -> Tensor:
    """Return a fitting tensor; one that is not finite is refused, for no server step leaves one behind."""
    if not is_finite(_fitting(name, value, like)):
        raise ValueError(f"{name} is not finite")
    return value


def _check_seconds(value: Any) -> None:
    """Raise unless this is a time that a world's clock can show."""
    if type(value) not in (int, float) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"the world's clock shows no number from 0 to {MAX_COUNT}")


def tables_of(state: State) -> dict[str, RowTable]:
    """Return the tables of rows in a state, by part and name."""
    return {
        f"{part}.{name}": value
        for part in PARTS
        for name, value in getattr(state, part).items()
        if isinstance(value, RowTable)
    }


def _put(name: str, value: Any, tensors: dict[str, Tensor], kinds: dict[str, Any]) -> None:
    if isinstance(value, Tensor):
        tensors[name], kinds[name] = value, {"is": "tensor"}
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        tensors[name] = torch.from_numpy(np.array(value))
        kinds[name] = {"is": "array" if isinstance(value, np.ndarray) else "number"}
    elif isinstance(value, RowTable):
        kinds[name] = {"is": "table", "rows": value.num_rows, "columns": value.size, "budget": value.budget}
    elif _is_plain(value):
        kinds[name] = {"is": "value", "value": value}
    else:
        raise ConfigError(
            f"A rule's memory is saved with the run, so it needs tensors, arrays, tables of rows, numbers, texts, and "
            f"lists or dicts of the last two; {name} is of type {type(value).__name__}. Change what the rule remembers."
        )


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(isinstance(key, str) and _is_plain(entry) for key, entry in value.items())
    return value is None or type(value) in (bool, int, float, str)


def _get(name: str, kind: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    if kind["is"] == "tensor":
        return tensors[name]
    if kind["is"] == "array":
        return tensors[name].cpu().numpy().copy()
    if kind["is"] == "number":
        return tensors[name].reshape(()).cpu().numpy()[()]
    if kind["is"] == "table":
        row_bytes = tensors["model"].numel() * tensors["model"].element_size()
        rows = count_of(kind["rows"], f"the rows of {name}", min(MOST_ROWS, MOST_BYTES // max(row_bytes, 1)))
        widest = max(tensors[each].numel() for each in ("model", "buffers") if each in tensors)
        columns = count_of(kind["columns"], f"the columns of {name}", widest)
        if columns != tensors["model"].numel() and not name.startswith(OWN_TABLE):
            raise ValueError(f"{name} has {columns} columns, and the model {tensors['model'].numel()} parameters")
        return RowTable(rows, tensors["model"].new_empty(columns), count_of(kind["budget"], f"the budget of {name}"))
    return kind["value"]
