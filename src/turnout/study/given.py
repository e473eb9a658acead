"""What is given for an axis in Python: a rule with the axis's method, told apart from a class or anything else."""

from collections.abc import Iterator

from torch import nn
from torch.nn.parameter import is_lazy

from turnout.catalogue import AXES
from turnout.data.federation import Federation

SECTIONS = {axis.section: name for name, axis in AXES.items() if "." not in axis.section}  # of a study, and their axes
OPTIONAL = ("assist", "asynchrony", "attack")
INSTEAD = {"data": Federation, "model": nn.Module}  # that are taken as they are


def rule_problems(study: object) -> Iterator[str]:
    """Yield a message for each section of a study whose value cannot be a rule of its axis."""
    for section, axis in SECTIONS.items():
        value = getattr(study, section)
        if isinstance(value, type):
            yield f"{section} needs a rule, not its class; got {value.__name__}. Write {value.__name__}(…)."
        elif isinstance(value, INSTEAD.get(section, ())):
            if isinstance(value, nn.Module) and any(map(is_lazy, (*value.parameters(), *value.buffers()))):
                yield (
                    f"{section} needs parameters whose shapes are known; {type(value).__name__} has some that wait for "
                    "their first input. Run one sample through it first."
                )
        elif not (value is None and section in OPTIONAL):
            methods = AXES[axis].methods
            if not any(callable(getattr(value, method, None)) for method in methods):
                also = f"a {INSTEAD[section].__name__}, or " if section in INSTEAD else ""
                yield (
                    f"{section} needs {also}a rule with the method {' or '.join(methods)}; got {value!r:.80}. "
                    f"See `turnout ls {axis}` for rules that have it."
                )
