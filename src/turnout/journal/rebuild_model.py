"""A model that turnout ships, built again from what a folder says of it; and which runs have a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from turnout.catalogue import catalogue
from turnout.checkpoint import LastModel
from turnout.errors import ConfigError, JournalError
from turnout.untrusted_input import as_written

MOST_TOLD = 20


def rebuilt(config: Mapping[str, Any], last: LastModel, where: str) -> nn.Module:
    """Return the module of a run's resolved study, with its last model in it."""
    with as_written(where):
        settings = dict(config["model"])
        rule = catalogue("models").get(settings.pop("use"))
        if rule is None:
            raise JournalError(
                f"{where} needs a model that turnout ships to build its module again; this run's is your own. "
                "Make the module yourself and load the weights: module.load_state_dict(loaded.state_dict(arm, seed))."
            )
        try:
            made = rule(**{name: tuple(each) if isinstance(each, list) else each for name, each in settings.items()})
            module = made.build(last.example_shape, last.num_outputs, torch.Generator().manual_seed(0))
        except ConfigError as error:  # a study with such settings would not have run
            raise ValueError(str(error)) from error
        return last.put_into(module)


def told_runs(finished: Sequence[tuple[str, int]]) -> str:
    """Return which runs are finished, in words."""
    if not finished:
        return "No run is finished."
    seeds: dict[str, list[int]] = {}
    for arm, seed in finished:
        seeds.setdefault(arm, []).append(seed)
    told = [f"{arm} with seed {', '.join(map(str, some[:MOST_TOLD]))}{_more(some)}" for arm, some in seeds.items()]
    return f"Finished are {'; '.join(told[:MOST_TOLD])}{_more(told)}."


def _more(told: Sequence[object]) -> str:
    return f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
