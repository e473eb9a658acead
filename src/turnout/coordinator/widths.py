"""Which part of the model each client trains: the width rule's rates and units become submodels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan
from turnout.errors import ConfigError
from turnout.models.members import Members
from turnout.models.slices import Slices
from turnout.protocols import View
from turnout.submodels import Labels, Parts, Submodel
from turnout.width.rates import Width, count_of


def parts_for(plan: Plan, view: View, clients: Ids, steps: Ids) -> Parts | None:
    """Return the submodels of these clients, which are ascending, in this round; None: all train the whole model."""
    if plan.width is None:
        return None
    if plan.traits.width.members_of is not None:
        return members_for(plan, view, clients)
    slices = _slices_of(plan)
    rates = cast(Width, plan.width).rates_of(clients, view)
    submodels: dict[Any, tuple[int, Submodel]] = {}

    def number_of(rate: float, client: int) -> int:
        key = (rate, client) if plan.traits.width.is_per_client else rate
        if key not in submodels:
            submodels[key] = (len(submodels), _submodel(plan, slices, rate, client, view))
        return submodels[key][0]

    which = [number_of(float(rate), int(client)) for rate, client in zip(rates, clients, strict=True)]
    step_rates, by_step = plan.traits.width.step_rates, None
    if step_rates is not None:
        drawn = step_rates(clients, rates, int(steps.max(initial=0)), view)
        by_step = np.where(np.arange(drawn.shape[1]) < steps[:, None], _numbers(drawn, clients, number_of), -1)
    return Parts(
        clients=clients,
        submodels=tuple(submodel for _, submodel in submodels.values()),
        which=np.array(which, dtype=np.int64),
        size=view.model.numel(),
        steps=by_step,
        distils=plan.traits.width.distil,
        labels=_labels_of(plan, slices, view, clients),
    )


def members_for(plan: Plan, view: View, clients: Ids) -> Parts | None:
    """Return the models of a family that these clients, which are ascending, train; None: there is no family."""
    members_of = plan.traits.width.members_of
    if members_of is None:
        return None
    members = _members(plan)
    return Parts(
        clients=clients,
        submodels=members.parts.members,
        which=members_of(clients, members.sizes, view),
        size=view.model.numel(),
        family=members.parts,
        is_sent=plan.traits.personal.has_shared_model,
    )


def usable_parts(plan: Plan, view: View) -> dict[str, Submodel]:
    """Return the parts of the model that are used by themselves, by the words that end the names of their metrics."""
    if plan.traits.width.members_of is not None:
        return {f"of_architecture_{number}": part for number, part in enumerate(_members(plan).parts.members)}
    rates = plan.traits.width.usable_rates
    return {f"at_width_{rate:g}": _submodel(plan, _slices_of(plan), rate, 0, view) for rate in rates}


def submodels_of(plan: Plan, module: nn.Module, sample: Tensor) -> Slices | Members:
    """Return the slices of a module or the members of a family; raise ConfigError where the width rule needs others."""
    return Slices.of(module, sample) if plan.traits.width.members_of is None else Members.of(module, sample)


def check_widths(plan: Plan, has_classes: bool) -> None:
    """Raise ConfigError if the model does not run at a rate, has no labels to mask, or a family does not fit."""
    if plan.traits.width.members_of is not None:
        _check_family(plan, _members(plan))
    elif plan.width is not None:
        slices = _slices_of(plan)
        for rate in sorted(set(plan.traits.width.known_rates)):
            slices.cut([count_of(rate, size) for size in slices.sizes])
        if plan.traits.width.mask_labels:
            if not has_classes:
                raise _no_labels(plan)
            slices.label_columns()
        if plan.traits.width.distil and not has_classes:
            raise ConfigError(
                f"{type(plan.width).__name__} with distil = true needs data with class labels, whose predictions are "
                "probabilities; these targets are numbers. Set width.distil = false.",
                setting="width.distil",
            )


def _labels_of(plan: Plan, slices: Slices, view: View, clients: Ids) -> Labels | None:
    if not plan.traits.width.mask_labels:
        return None
    counts = view.population.label_counts
    if counts is None:
        raise _no_labels(plan)
    return Labels(np.asarray(counts[clients] > 0), slices.label_columns())


def _no_labels(plan: Plan) -> ConfigError:
    return ConfigError(
        f"{type(plan.width).__name__} with mask_labels = true needs to know how many samples of each label a client "
        "has; these data do not say. Use data with class labels, or set width.mask_labels = false.",
        setting="width.mask_labels",
    )


def _check_family(plan: Plan, members: Members) -> None:
    problems = plan.traits.width.family_problems
    if problems is not None and (found := list(problems(len(members.sizes)))):
        raise ConfigError.of(found)
    if plan.traits.aggregation.needs_alike_last_layers:
        members.check_last_layers()


def _numbers(drawn: Floats, clients: Ids, number_of: Callable[[float, int], int]) -> Ids:
    """Return the number of the submodel of each client at each step."""
    numbers = np.empty(drawn.shape, dtype=np.int64)
    for row, client in enumerate(clients):
        for rate in np.unique(drawn[row]):
            numbers[row, drawn[row] == rate] = number_of(float(rate), int(client))
    return numbers


def _members(plan: Plan) -> Members:
    if not isinstance(plan.slices, Members):
        raise ConfigError("A plan with architectures needs the members of a family. Pass slices=Members.of(…) to Plan.")
    return plan.slices


def _slices_of(plan: Plan) -> Slices:
    if not isinstance(plan.slices, Slices):
        raise ConfigError("A plan with a width rule needs the slices of the model. Pass slices=Slices.of(…) to Plan.")
    return plan.slices


def _submodel(plan: Plan, slices: Slices, rate: float, client: int, view: View) -> Submodel:
    width = cast(Width, plan.width)
    units = [np.asarray(width.units(group, size, rate, client, view)) for group, size in enumerate(slices.sizes)]
    for size, chosen in zip(slices.sizes, units, strict=True):
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not len(chosen) or not _are_units(chosen, size):
            raise ConfigError(
                f"{type(plan.width).__name__} needs units from 0 to {size - 1}, ascending and one at least; got "
                f"{chosen.tolist()!r:.60} for client {client}. Change what its method units returns.",
                setting="width",
            )
    return replace(slices.submodel(units), is_scaled=plan.traits.width.scaler)


def _are_units(chosen: Ids, size: int) -> bool:
    return bool((np.diff(chosen) > 0).all() and chosen[0] >= 0 and chosen[-1] < size)
