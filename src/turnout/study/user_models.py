"""A note on models of the user whose seeds all start from the same weights."""

from typing import TYPE_CHECKING

from torch import nn

from turnout.models.family import Family
from turnout.models.user_modules import Model

if TYPE_CHECKING:
    from turnout.study.study import Study


def initial_weights_note(study: "Study") -> str | None:
    """Return a note if the seeds start from the weights of a module instance; else None."""
    found = {arm: _instance(one.model) for arm, one in study.versions().items()}
    given = {arm: type(module).__name__ for arm, module in found.items() if module is not None}
    if not given:
        return None
    where = "" if len(given) == len(study.versions()) else f" of {', '.join(given)}"
    names = " or ".join(f"model={name} or model=lambda: {name}(...)" for name in dict.fromkeys(given.values()))
    return f"every seed{where} starts from the weights of the given module; pass {names} to draw new ones per seed"


def _instance(model: Model) -> nn.Module | None:
    """Return the module instance that a study has as its model, or as the first such part of a family."""
    parts = model.parts if isinstance(model, Family) else (model,)
    return next((part for part in parts if isinstance(part, nn.Module)), None)
