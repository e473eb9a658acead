"""Which part of the model each client trains: the width rule's rates and units become submodels."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from torch import Tensor, nn

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan
from turnout.errors import ConfigError
from turnout.models.family import FamilyModule
from turnout.models.members import Members
from turnout.models.slices import Slices
from turnout.number_format import plural
from turnout.protocols import View
from turnout.submodels import Labels, Parts, Submodel
from turnout.width.rates import Width, count_of


def parts_for(plan: Plan, view: View, clients: Ids, steps: Ids) -> Parts | None:
    """Return the submodels of these clients, which are ascending, in this round; None: all train the whole model."""
    if plan.width is None:
        return None
    if plan.traits.width.members_of is not None:
        return members_for(plan, view, clients)
    slices, step_rates = _slices_of(plan), plan.traits.width.step_rates
    rates = np.asarray(cast(Width, plan.width).rates_of(clients, view))[:, None]
    if step_rates is not None:
        rates = np.hstack([rates, step_rates(clients, rates[:, 0], int(steps.max(initial=0)), view)])
    numbers, submodels = _numbered(rates, clients, lambda rate, some: _submodels(plan, rate, some, view))
    asked = np.arange(rates.shape[1] - 1) < steps[:, None]
    return Parts(
        clients=clients,
        submodels=submodels,
        which=numbers[:, 0],
        size=view.model.numel(),
        steps=None if step_rates is None else np.where(asked, numbers[:, 1:], -1),
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
    anyone, rates = np.zeros(1, dtype=np.int64), plan.traits.width.usable_rates
    return {f"at_width_{rate:g}": _submodels(plan, rate, anyone, view)[0] for rate in rates}


def submodels_of(plan: Plan, module: nn.Module, sample: Tensor) -> Slices | Members:
    """Return the slices of a module or the members of a family; raise ConfigError where the width rule needs others."""
    return Slices.of(module, sample) if plan.traits.width.members_of is None else Members.of(module, sample)


def check_family_is_used(plan: Plan, module: nn.Module) -> None:
    """Raise ConfigError if a family of models comes without a rule that says which client trains which model."""
    if isinstance(module, FamilyModule) and plan.traits.width.members_of is None:
        raise ConfigError(
            'A family of models needs width.use = "architectures", which says which client trains which model; '
            f"got {'none' if plan.width is None else type(plan.width).__name__}. Set it, or give one model.",
            setting="width.use",
        )


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


def _numbered(
    rates: Floats, clients: Ids, made_for: Callable[[float, Ids], list[Submodel]]
) -> tuple[Ids, tuple[Submodel, ...]]:
    """Return the number of the submodel of each client at each of its rates, and the submodels in order of clients."""
    numbers, made = np.zeros(rates.shape, dtype=np.int64), list[Submodel]()
    for rate in np.unique(rates):
        rows = np.flatnonzero((rates == rate).any(1))
        added, own = made_for(float(rate), clients[rows]), np.full(len(clients), len(made))
        own[rows] += np.arange(len(rows)) if len(added) > 1 else 0
        numbers, made = np.where(rates == rate, own[:, None], numbers), made + added
    _, first = np.unique(numbers.T, return_index=True)  # the rates that clients have come before those of their steps
    order = np.argsort(first)
    return np.asarray(np.argsort(order)[numbers]), tuple(made[number] for number in order)


def _members(plan: Plan) -> Members:
    if not isinstance(plan.slices, Members):
        raise ConfigError("A plan with architectures needs the members of a family. Pass slices=Members.of(…) to Plan.")
    return plan.slices


def _slices_of(plan: Plan) -> Slices:
    if not isinstance(plan.slices, Slices):
        raise ConfigError("A plan with a width rule needs the slices of the model. Pass slices=Slices.of(…) to Plan.")
    return plan.slices


def _submodels(plan: Plan, rate: float, clients: Ids, view: View) -> list[Submodel]:
    """Return the submodel of each of these clients, which have this rate, or one that all of them have."""
    slices, width = _slices_of(plan), cast(Width, plan.width)
    units = [np.asarray(width.units(group, size, rate, clients, view)) for group, size in enumerate(slices.sizes)]
    for size, chosen in zip(slices.sizes, units, strict=True):
        if not _are_units(chosen, size, len(clients)):
            raise ConfigError(
                f"{type(plan.width).__name__} needs units from 0 to {size - 1}, ascending and one at least, one row "
                f"per client or one list for all; got {chosen.tolist()!r:.60} for {plural(len(clients), 'client')}. "
                "Change what its method units returns.",
                setting="width",
            )
    submodels = slices.submodels(units)
    return [replace(submodel, is_scaled=True) for submodel in submodels] if plan.traits.width.scaler else submodels


def _are_units(chosen: Ids, size: int, clients: int) -> bool:
    if chosen.dtype.kind not in "iu" or chosen.shape[:-1] not in ((), (clients,)) or not chosen.size:
        return False
    return bool((np.diff(chosen) > 0).all() and chosen.min() >= 0 and chosen.max() < size)
