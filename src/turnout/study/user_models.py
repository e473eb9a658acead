"""Models of the user's own: a module, a module class, or a function without arguments that returns a module.

A class or a function is called anew for each seed; a module is an instance, and every seed starts from its weights.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import nn

from turnout.models import ModelRule
from turnout.models.keyed import made

if TYPE_CHECKING:
    from turnout.study.study import Study

ModuleFactory = Callable[..., nn.Module]  # a module class, or a function that returns a module
Model = ModelRule | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True, slots=True)
class UserModule:
    """Calls the class or function with the settings given; in a file: `model = { use = "package.module:Net", … }`."""

    module: ModuleFactory
    settings: Mapping[str, Any] = field(default_factory=dict)

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the module; it knows its own shapes."""
        return made(lambda: self.module(**self.settings), qualified_name(self.module), generator)


def qualified_name(maker: object) -> str:
    """Return the name of a class or function."""
    return str(getattr(maker, "__qualname__", type(maker).__qualname__))


def is_module_factory(model: object) -> TypeGuard[ModuleFactory]:
    """Whether a model is a module class or a function; what has the method build is a rule."""
    if isinstance(model, type):
        return issubclass(model, nn.Module)
    return callable(model) and not isinstance(model, nn.Module) and not hasattr(model, "build")


def model_rule(model: Model) -> ModelRule | nn.Module:
    """Return a study's model as a rule that builds it, or as the module that was given."""
    return UserModule(model) if is_module_factory(model) else cast("ModelRule | nn.Module", model)


def build_module(model: Model, shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> nn.Module:
    """Return a module of the study's model that nobody else holds: of a given module, a copy."""
    rule = model_rule(model)
    return copy.deepcopy(rule) if isinstance(rule, nn.Module) else rule.build(shape, outputs, generator)


def initial_weights_note(study: "Study") -> str | None:
    """Return a note for studies whose seeds start from the weights of a given module; None for all others."""
    given = {arm: type(one.model).__name__ for arm, one in study.versions().items() if isinstance(one.model, nn.Module)}
    if not given:
        return None
    where = "" if len(given) == len(study.versions()) else f" of {', '.join(given)}"
    names = " or ".join(f"model={name} or model=lambda: {name}(...)" for name in dict.fromkeys(given.values()))
    return f"every seed{where} starts from the weights of the given module; pass {names} to draw new ones per seed"
