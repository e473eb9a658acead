"""A study as plain values: every setting, with its defaults."""

import json
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import partial
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnout.analysis.target import target_of
from turnout.axes import RULE_SECTIONS, STUDY_SECTIONS
from turnout.catalogue import name_of, nested_axis, nested_list_axis
from turnout.data.digest import federation_digest, tensor_digest
from turnout.data.federation import Federation
from turnout.losses import LOSSES
from turnout.models.user_modules import UserModule, model_rule, qualified_name
from turnout.parameters import parameters
from turnout.settings import members
from turnout.study.study import Study

MADE_IN_PYTHON = "made_in_python"  # the key of a part that no study file can describe; its value is the kind of part


def resolved_settings(study: Study) -> dict[str, Any]:
    """Return the study as plain values for JSON; equal studies give equal values."""
    seeds = study.seeds if isinstance(study.seeds, int) else list(study.seeds)
    if isinstance(seeds, list) and seeds == list(range(len(seeds))):
        seeds = len(seeds)
    target = target_of(study.target)
    plain: dict[str, Any] = {"name": study.name, "seeds": seeds, "target": None if target is None else target.as_dict()}
    plain["until_clear"] = plain_value(study.until_clear)
    plain |= _sections({name: getattr(study, name) for name in STUDY_SECTIONS})
    plain["checkpoint"] = plain_value(study.checkpoint)
    plain["track"] = list(study.track)
    arms = [{"name": arm.name, **_sections(_with_data(arm.changes, study))} for arm in study.arms]
    return plain | ({"arm": arms} if arms else {})


def _with_data(changes: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return an arm's changes; if it changes a part of [data], with the complete section."""
    if not {"data", "data_seed"} & set(changes):
        return dict(changes)
    return {"data": study.data, "data_seed": study.data_seed, **changes}


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name in STUDY_SECTIONS:
        if name not in values or name == "data_seed":
            continue
        value = values[name]
        if name == "loss":
            plain[name] = "auto" if value is None else _loss_value(value)
        elif name in RULE_SECTIONS and value is not None:
            plain[name] = rule_values(RULE_SECTIONS[name], value)
        else:
            plain[name] = plain_value(value)
        if name == "data" and values.get("data_seed") is not None:
            plain[name]["seed"] = values["data_seed"]
    return plain


def rule_values(axis: str, rule: Any) -> dict[str, Any]:
    """Return a rule as the table of a study file."""
    if isinstance(rule, Federation):
        return {MADE_IN_PYTHON: "federation", "name": rule.name, "digest": federation_digest(rule)}
    rule = model_rule(rule) if axis == "models" else rule
    if isinstance(rule, nn.Module):
        return {MADE_IN_PYTHON: "module", "name": type(rule).__qualname__, "digest": _module_digest(rule)}
    if isinstance(rule, UserModule):
        return _own_module(rule)
    return {"use": name_of(axis, type(rule)), **_settings(rule)}


def _own_module(rule: UserModule) -> dict[str, Any]:
    """Return a module class by its address; a function or a local class by a digest of the module that it makes."""
    if isinstance(rule.module, type) and _can_be_named(rule.module):
        return {"use": _address(rule.module), **plain_value(dict(rule.settings))}
    kind = "class" if isinstance(rule.module, type) else "function"
    digest = _module_digest(rule.build((), 0, torch.Generator().manual_seed(0)))
    return {MADE_IN_PYTHON: kind, "name": qualified_name(rule.module), "digest": digest}


def _can_be_named(owner: type) -> bool:
    """Whether another process can import a class by its address."""
    found: Any = sys.modules.get(owner.__module__)
    for part in owner.__qualname__.split("."):
        found = getattr(found, part, None)
    return owner.__module__ != "__main__" and found is owner


def _module_digest(module: nn.Module) -> str:
    return tensor_digest(
        [(name, value) for name, value in sorted(module.state_dict().items()) if isinstance(value, Tensor)]
    )


def fixed_digest(module: nn.Module) -> str:
    """Return a digest of what runs do not train: frozen parameters, integer buffers and other tensors."""
    frozen = [(name, value) for name, value in module.named_parameters() if not value.requires_grad]
    whole = [(name, value) for name, value in module.named_buffers() if not value.is_floating_point()]
    plain = [
        (f"{prefix}.{name}", torch.as_tensor(value))
        for prefix, child in module.named_modules()
        for name, value in vars(child).items()
        if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    ]
    return tensor_digest([*frozen, *whole, *plain])


def _settings(rule: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, given in parameters(type(rule)).items():
        if not hasattr(rule, name):
            continue
        value, kinds = getattr(rule, name), members(given.hint)
        axis, list_axis = nested_axis(name, kinds), nested_list_axis(kinds)
        if list_axis is not None and value is not None:
            values[name] = [rule_values(list_axis, entry) for entry in value]
            continue
        values[name] = plain_value(value) if axis is None or value is None else rule_values(axis, value)
    return values


def plain_value(value: Any) -> Any:
    """Return a setting as a value for JSON."""
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
        return {MADE_IN_PYTHON: "tensor", "digest": tensor_digest([("value", torch.as_tensor(value))])}
    if is_dataclass(value) and not isinstance(value, type):
        return _settings(value)
    return _address(value)


def _loss_value(loss: Any) -> str | dict[str, str]:
    """Return a loss by its name or address; an object by its class and a digest of its settings."""
    known = next((name for name, each in LOSSES.items() if each is loss), None)
    if known is not None or hasattr(loss, "__qualname__"):
        return known or _address(loss)
    digest = blake2b(json.dumps(_loss_settings(loss), sort_keys=True).encode(), digest_size=6).hexdigest()
    return {MADE_IN_PYTHON: "loss", "name": type(loss).__qualname__, "digest": digest}


def _loss_settings(loss: Any) -> Any:
    """Return the settings in which two losses of one class can differ."""
    if isinstance(loss, partial):
        return plain_value([loss.func, loss.args, loss.keywords])
    if is_dataclass(loss):
        return plain_value(loss)
    own = {name: value for name, value in getattr(loss, "__dict__", {}).items() if not name.startswith("_")}
    return plain_value([own, loss.state_dict() if isinstance(loss, nn.Module) else {}])


def _address(value: Any) -> str:
    owner = value if hasattr(value, "__qualname__") else type(value)
    return f"{owner.__module__}:{owner.__qualname__}"
