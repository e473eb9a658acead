"""A study written out in full: every setting, defaults included, as plain values and as TOML that loads back."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import PurePath
from types import UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor, nn

from turnout.catalogue import AXES, LOSSES, name_of, parameters
from turnout.data.federation import Federation, Held
from turnout.study.convert import nested_axis
from turnout.study.own_module import OwnModule
from turnout.study.study import SECTIONS, Study

RULES = {facts.section: axis for axis, facts in AXES.items() if "." not in facts.section}
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def resolved(study: Study) -> dict[str, Any]:
    """Return the study as plain values that JSON can hold; the same study always gives the same."""
    seeds = study.seeds if isinstance(study.seeds, int) else list(study.seeds)
    if isinstance(seeds, list) and seeds == list(range(len(seeds))):
        seeds = len(seeds)
    plain: dict[str, Any] = {"name": study.name, "seeds": seeds, "target": study.target}
    plain |= _sections({name: getattr(study, name) for name in SECTIONS})
    plain["checkpoint"] = plain_value(study.checkpoint)
    plain["track"] = list(study.track)
    arms = [{"name": arm.name, **_sections(_with_data(arm.changes, study))} for arm in study.arms]
    return plain | ({"arm": arms} if arms else {})


def _with_data(changes: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return an arm's changes with the whole of [data] where the arm changes a part of it."""
    if not {"data", "data_seed"} & set(changes):
        return dict(changes)
    return {"data": study.data, "data_seed": study.data_seed, **changes}


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name in SECTIONS:
        if name not in values or name == "data_seed":
            continue
        value = values[name]
        if name == "loss":
            plain[name] = "auto" if value is None else _loss_name(value)
        elif name in RULES and value is not None:
            plain[name] = rule_values(RULES[name], value)
        else:
            plain[name] = plain_value(value)
        if name == "data" and values.get("data_seed") is not None:
            plain[name]["seed"] = values["data_seed"]
    return plain


def rule_values(axis: str, rule: Any) -> dict[str, Any]:
    """Return a rule as the table of a study file."""
    if isinstance(rule, Federation):
        return {"use": "(a federation made in Python)", "name": rule.name, "digest": _federation_digest(rule)}
    if isinstance(rule, nn.Module):
        held = sorted(rule.state_dict().items())
        return {"use": "(a module made in Python)", "name": type(rule).__qualname__, "digest": _digest(held)}
    if isinstance(rule, OwnModule):
        return {"use": _address(rule.module), **plain_value(dict(rule.settings))}
    return {"use": name_of(axis, type(rule)), **_settings(rule)}


def _settings(rule: Any) -> dict[str, Any]:
    values = {}
    for name, given in parameters(type(rule)).items():
        if not hasattr(rule, name):
            continue
        value = getattr(rule, name)
        members = get_args(given.hint) if get_origin(given.hint) in (Union, UnionType) else (given.hint,)
        axis = nested_axis(name, members)
        values[name] = plain_value(value) if axis is None or value is None else rule_values(axis, value)
    return values


def plain_value(value: Any) -> Any:
    """Return a setting as JSON can hold it."""
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain_value(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Tensor | np.ndarray):
        return {"digest": _digest([("value", torch.as_tensor(value))])}
    if is_dataclass(value) and not isinstance(value, type):
        return _settings(value)
    return _address(value)


def _loss_name(loss: Any) -> str:
    return next((name for name, known in LOSSES.items() if known is loss), None) or _address(loss)


def _address(value: Any) -> str:
    owner = value if hasattr(value, "__qualname__") else type(value)
    return f"{owner.__module__}:{owner.__qualname__}"


def _federation_digest(federation: Federation) -> str:
    named: list[tuple[str, Any]] = [("sizes", torch.from_numpy(np.ascontiguousarray(federation.sizes)))]
    for part in fields(federation):
        value = getattr(federation, part.name)
        if isinstance(value, Held):
            named += [(f"{part.name}.{name}", getattr(value, name)) for name in ("x", "y", "order")]
        elif part.name in ("test", "server") and value is not None:
            named += [(f"{part.name}.x", value.x), (f"{part.name}.y", value.y)]
    return _digest([(name, value) for name, value in named if value is not None])


def _digest(named: list[tuple[str, Tensor]]) -> str:
    """Return a short fingerprint of named tensors."""
    digest = blake2b(digest_size=12)
    for name, value in named:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def to_toml(plain: Mapping[str, Any]) -> str:
    """Return a resolved study as a file that loads back to the same study."""
    lines = _table(None, {key: value for key, value in plain.items() if key != "arm" and value is not None})
    for arm in plain.get("arm", ()):
        lines += ["", "[[arm]]", *_table("arm", arm)]
    return "\n".join(lines) + "\n"


def _table(parent: str | None, entries: Mapping[str, Any]) -> list[str]:
    """Return a table's plain settings, then each section as a table of its own."""
    lines = _pairs({key: value for key, value in entries.items() if not isinstance(value, dict)})
    for key, section in entries.items():
        if isinstance(section, dict):
            lines += ["", f"[{parent}.{_key(key)}]" if parent else f"[{_key(key)}]", *_pairs(section)]
    return lines


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    width = max((len(_key(key)) for key in settings), default=0)
    return [f"{_key(key):{width}} = {_toml(value)}" for key, value in settings.items()]


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _toml(key)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; nothing is the text "none"."""
    if value is None:
        return '"none"'
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
