"""Shorthand for rules in Python: a rule's name or a dict of its settings can stand for the rule.

`partition="dirichlet"` and `local=dict(lr=0.3)` mean the same as in a study file, since the same parser reads them. The
parser imports every axis, and rules of the axes call it, so the import is lazy.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def as_rule(axis: str, value: Any, base: Any = None) -> Any:
    """Return the rule for a name or a dict; return any other value unchanged.

    Args:
        axis: axis of the rule, such as "partition".
        value: name of the rule in the catalogue, or a dict of settings with the name of the rule as "use".
        base: rule whose settings the dict changes, if the dict names no other rule.
    """
    if not isinstance(value, str | Mapping):
        return value
    return import_module("turnout.study.typed_values").rule_of(axis, value, base)


def as_setting(name: str, allowed: Sequence[Any], value: Any) -> Any:
    """Return the rule for a name or a dict in a setting whose allowed types are rules; else return the value.

    In a list of rules, each entry may be a name or a dict.
    """
    if not isinstance(value, str | Mapping | list | tuple):
        return value
    catalogue = import_module("turnout.catalogue")
    if isinstance(value, list | tuple):
        axis = catalogue.nested_list_axis(allowed)
        return value if axis is None else [as_rule(axis, entry) for entry in value]
    axis = catalogue.nested_axis(name, allowed)
    return value if axis is None else as_rule(axis, value)
