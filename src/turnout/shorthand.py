"""A rule by its name, or by a dict of settings, wherever Python code gives a rule.

`partition="dirichlet"` and `local=dict(lr=0.3)` mean what the same words mean in a study file: one reader reads both.
That reader knows every axis, and rules are read while other rules are made, so it is imported when it is needed.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def as_rule(axis: str, value: Any, base: Any = None) -> Any:
    """Return the rule that a name or a dict stands for; anything else stays as it is.

    Args:
        axis: the axis the rule is of, such as "partition".
        value: a rule's name in the catalogue; or a dict of settings, with the rule's name as "use".
        base: the rule whose settings a dict changes, where it names no other rule.
    """
    if not isinstance(value, str | Mapping):
        return value
    return import_module("turnout.study.typed_values").rule_of(axis, value, base)


def as_setting(name: str, allowed: Sequence[Any], value: Any) -> Any:
    """Return the rule that a name or a dict stands for, in a setting of these types that holds rules."""
    if not isinstance(value, str | Mapping):
        return value
    axis = import_module("turnout.catalogue").nested_axis(name, allowed)
    return value if axis is None else as_rule(axis, value)
