"""Check before any data is loaded whether a study's model can be cut, where clients train models of different widths.

The model is built for samples of the form that the data's settings say. Data that does not say it is checked when it is
loaded, before the first round.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from turnout.coordinator.widths import check_widths, submodels_of
from turnout.errors import ConfigError, Problem
from turnout.models.user_modules import build_module
from turnout.study.study import Study
from turnout.traits import DataTraits, SampleForm, traits_of


def width_problems(version: Study) -> Iterator[Problem]:
    """Yield why the model of an arm cannot be built or cut at its rates."""
    form = traits_of(DataTraits, version.data).sample_form
    if version.width is None or form is None:
        return
    generator = torch.Generator().manual_seed(0)
    try:
        module = build_module(version.model, form.shape, form.outputs, generator)
        slices = submodels_of(version.plan, module, any_sample(form, generator))
        check_widths(replace(version.plan, slices=slices), form.has_classes)
    except ConfigError as error:
        yield from (Problem(problem.message, problem.setting or "model") for problem in error.problems)


def any_sample(form: SampleForm, generator: torch.Generator) -> Tensor:
    """Return a batch of one sample with random numbers; indices are 0, which every vocabulary has."""
    if form.is_index:
        return torch.zeros(1, *form.shape, dtype=torch.int64)
    return torch.rand(1, *form.shape, generator=generator)
