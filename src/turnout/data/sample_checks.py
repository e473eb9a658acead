"""Checks of a federation's data: texts that name clients, and sets that must be like the training samples."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from turnout.errors import DataError
from turnout.rows import is_finite
from turnout.untrusted_input import MOST_LETTERS

if TYPE_CHECKING:
    from turnout.data.federation import Federation, Samples


def check_texts(federation: "Federation") -> None:
    """Raise if names or groups are not one per client, or two clients share a name."""
    names, count = federation.client_names, federation.num_clients
    for what, texts in (("names", names), ("groups", federation.client_groups)):
        if texts is not None and len(texts) != count:
            raise DataError(
                f"Client {what} must be one per client; got {len(texts)} for {count} clients. "
                f"Pass {count} {what}, or none."
            )
        invalid = next((text for text in texts or () if not text.isprintable() or len(text) > MOST_LETTERS), None)
        if invalid is not None:
            raise DataError(
                f"Client {what} must be at most {MOST_LETTERS} printable characters each; got {invalid!r:.60}. "
                "Shorten it, and remove line breaks."
            )
    if names is not None and len(set(names)) < count:
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Client names must differ; {twice!r} names {names.count(twice)} clients. Rename the others.")


def check_alike(which: str, samples: "Samples", train: "Samples") -> None:
    """Raise if a set differs from the training samples in the shape or type of inputs or targets."""
    if len(samples.x) != len(samples.y) or not len(samples):
        raise DataError(
            f"The {which} set needs one target per input, and at least one; got {len(samples.x)} inputs and "
            f"{len(samples.y)} targets. Check the arrays you pass, or leave the set out."
        )
    for what, own, needed in (("inputs", samples.x, train.x), ("targets", samples.y, train.y)):
        if own.shape[1:] != needed.shape[1:]:
            raise DataError(
                f"The {which} {what} must have the shape of the training {what}, {tuple(needed.shape[1:])} a sample; "
                f"got {tuple(own.shape[1:])}. Prepare both in the same way."
            )
    if samples.y.is_floating_point() != train.y.is_floating_point():
        raise DataError(
            f"The {which} targets must be {_kind(train.y)} like the training targets; got "
            f"{_kind(samples.y)}. Convert one of them."
        )


def _kind(y: Tensor) -> str:
    return "floats" if y.is_floating_point() else "labels"


def check_values(which: str, x: Tensor, y: Tensor, federation: "Federation") -> None:
    """Raise if inputs or targets are not finite, or labels lie outside the classes."""
    for what, values in (("inputs", x), ("targets", y)):
        if values.is_floating_point() and not is_finite(values):
            bad = int((~torch.isfinite(values.flatten(1) if values.dim() > 1 else values[:, None]).all(1)).sum())
            raise DataError(
                f"The {which} {what} must be finite; {bad} of {len(values)} samples hold NaN or infinity. "
                "Clean or drop those samples before building the federation."
            )
    if federation.num_classes is not None and len(y) and not y.is_floating_point():
        low, high = int(y.min()), int(y.max())
        if low < 0:
            raise DataError(f"The {which} labels must be numbered from 0; got {low}…{high}. Renumber the labels.")
        if high >= federation.num_classes:
            raise DataError(
                f"The {which} labels must lie in 0…{federation.num_classes - 1} for {federation.num_classes} classes; "
                f"got {low}…{high}. Renumber the labels, or set num_classes to {high + 1}."
            )


def check_public(public: Tensor, inputs: Tensor) -> None:
    """Raise if public inputs differ from the training inputs in shape, there are none, or some are not finite."""
    if not len(public) or public.shape[1:] != inputs.shape[1:]:
        raise DataError(
            f"The public inputs must be one or more, of the shape of the training inputs, {tuple(inputs.shape[1:])} a "
            f"sample; got {len(public)} of shape {tuple(public.shape[1:])}. Prepare both in the same way."
        )
    if public.is_floating_point() and not is_finite(public):
        raise DataError("The public inputs must be finite; some hold NaN or infinity. Clean or drop those samples.")
