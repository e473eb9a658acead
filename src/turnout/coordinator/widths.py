"""Which part of the model each client trains: the width rule's rates and units become submodels."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan
from turnout.errors import ConfigError
from turnout.models.slices import Slices
from turnout.number_format import plural
from turnout.protocols import View
from turnout.submodels import Labels, Parts, Submodel
from turnout.width.rates import count_of


def parts_for(plan: Plan, view: View, clients: Ids, steps: Ids) -> Parts | None:
    """Return the submodels of these clients, which are ascending, in this round; None: all train the whole model."""
    if plan.width is None:
        return None
    slices, step_rates = _slices_of(plan), plan.traits.width.step_rates
    rates = np.asarray(plan.width.rates_of(clients, view))[:, None]
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


def usable_parts(plan: Plan, view: View) -> dict[float, Submodel]:
    """Return the parts of the model that are used by themselves, by their rate."""
    anyone = np.zeros(1, dtype=np.int64)
    return {rate: _submodels(plan, rate, anyone, view)[0] for rate in plan.traits.width.usable_rates}


def check_widths(plan: Plan, has_classes: bool) -> None:
    """Raise ConfigError if the model does not run at a rate that a client may have, or has no labels to mask."""
    if plan.width is not None:
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


def _slices_of(plan: Plan) -> Slices:
    if plan.slices is None:
        raise ConfigError("A plan with a width rule needs the slices of the model. Pass slices=Slices.of(…) to Plan.")
    return plan.slices


def _submodels(plan: Plan, rate: float, clients: Ids, view: View) -> list[Submodel]:
    """Return the submodel of each of these clients, which have this rate, or one that all of them have."""
    assert plan.width is not None
    slices = _slices_of(plan)
    units = [np.asarray(plan.width.units(group, size, rate, clients, view)) for group, size in enumerate(slices.sizes)]
    for size, chosen in zip(slices.sizes, units, strict=True):
        if not _are_units(chosen, size, len(clients)):
            raise ConfigError(
                f"{type(plan.width).__name__} needs units from 0 to {size - 1}, ascending and one at least, one row "
                f"per client or one list for all; got {chosen.tolist()!r:.60} for {plural(len(clients), 'client')}. "
                "Change what its method units returns.",
                setting="width",
            )
    return [replace(submodel, is_scaled=plan.traits.width.scaler) for submodel in slices.submodels(units)]


def _are_units(chosen: Ids, size: int, clients: int) -> bool:
    if chosen.dtype.kind not in "iu" or chosen.shape[:-1] not in ((), (clients,)) or not chosen.size:
        return False
    return bool((np.diff(chosen) > 0).all() and chosen.min() >= 0 and chosen.max() < size)
