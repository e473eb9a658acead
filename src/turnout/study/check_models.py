"""Check before any data is loaded whether a study's model suits its rules: widths, layers that stay, architectures.

The model is built for samples of the form that the data's settings say. Data that does not say it is checked when it is
loaded, before the first round.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from turnout.coordinator.compatibility import check_buffers
from turnout.coordinator.widths import check_family_is_used, check_widths, submodels_of
from turnout.errors import ConfigError, Problem
from turnout.models.family import Family
from turnout.models.layout import Layout
from turnout.models.user_modules import build_module
from turnout.study.study import Study
from turnout.traits import DataTraits, SampleForm, traits_of


def model_problems(version: Study) -> Iterator[Problem]:
    """Yield why the model of an arm cannot be built, does not suit a rule, or cannot be cut at its rates."""
    form, plan = traits_of(DataTraits, version.data).sample_form, version.plan
    judges = (plan.width, plan.personal, plan.assignment, plan.asynchrony)
    if form is None or (all(rule is None for rule in judges) and not isinstance(version.model, Family)):
        return
    generator = torch.Generator().manual_seed(0)
    try:
        module = build_module(version.model, form.shape, form.outputs, generator)
        plan = replace(plan, layout=Layout.of(module))
        check_buffers(plan, has_buffers=bool(plan.layout and plan.layout.buffers))
        check_family_is_used(plan, module)
        if plan.width is not None:
            slices = submodels_of(plan, module, any_sample(form, generator))
            check_widths(replace(plan, slices=slices), form.has_classes)
    except ConfigError as error:
        yield from (Problem(problem.message, problem.setting or "model") for problem in error.problems)


def any_sample(form: SampleForm, generator: torch.Generator) -> Tensor:
    """Return a batch of one sample with random numbers; indices are 0, which every vocabulary has."""
    if form.is_index:
        return torch.zeros(1, *form.shape, dtype=torch.int64)
    return torch.rand(1, *form.shape, generator=generator)
