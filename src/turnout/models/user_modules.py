"""Models of the user: a module, a module class, or a function without arguments that returns a module.

A class or a function is called once per seed. With a module instance, every seed starts from its weights.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import torch
from torch import nn

from turnout.models.keyed import made
from turnout.models.model_rule import ModelRule

ModuleFactory = Callable[..., nn.Module]  # a module class, or a function that returns a module
Model = ModelRule | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class UserModule:
    """Calls a class or function with settings; in a study file `model = { use = "package.module:Net", … }`."""

    module: ModuleFactory
    settings: Mapping[str, Any] = field(default_factory=dict)

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the module; shapes are its own matter."""
        return made(lambda: self.module(**self.settings), qualified_name(self.module), generator)


def qualified_name(maker: object) -> str:
    """Return the name of a class or function."""
    return str(getattr(maker, "__qualname__", type(maker).__qualname__))


def is_module_factory(model: object) -> TypeGuard[ModuleFactory]:
    """Whether a model is a module class or a function; an object with a method build is a rule."""
    if isinstance(model, type):
        return issubclass(model, nn.Module)
    return callable(model) and not isinstance(model, nn.Module) and not hasattr(model, "build")


def model_rule(model: Model) -> ModelRule | nn.Module:
    """Return the model of a study as a rule or as a module."""
    return UserModule(model) if is_module_factory(model) else cast("ModelRule | nn.Module", model)


def build_module(model: Model, shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> nn.Module:
    """Return a new module of the study's model; of a module, a copy."""
    rule = model_rule(model)
    return copy.deepcopy(rule) if isinstance(rule, nn.Module) else rule.build(shape, outputs, generator)
