"""Rebuild the module of a finished run from its settings and its saved model, for models that turnout ships."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from turnout.catalogue import catalogue
from turnout.checkpoint import LastModel
from turnout.errors import ConfigError, JournalError
from turnout.untrusted_input import as_written

MOST_LISTED = 20  # arms, and seeds of an arm, in a message


def rebuild_module(config: Mapping[str, Any], last: LastModel, where: str) -> nn.Module:
    """Return the module that a run's settings describe, loaded with the run's last model."""
    with as_written(where):
        settings = dict(config["model"])
        rule = catalogue("models").get(settings.pop("use", ""))
        if rule is None:
            raise JournalError(
                f"{where} needs a model that turnout ships to build its module again; this run's is your own. "
                "Make the module yourself and load the weights: module.load_state_dict(loaded.state_dict(arm, seed))."
            )
        try:
            model = rule(**{name: tuple(each) if isinstance(each, list) else each for name, each in settings.items()})
            module = model.build(last.example_shape, last.num_outputs, torch.Generator().manual_seed(0))
        except ConfigError as error:  # a study with such settings would not have run
            raise ValueError(str(error)) from error
        return last.put_into(module)


def finished_runs_text(finished: Sequence[tuple[str, int]]) -> str:
    """Return a sentence that lists the finished runs."""
    if not finished:
        return "No run is finished."
    seeds: dict[str, list[int]] = {}
    for arm, seed in finished:
        seeds.setdefault(arm, []).append(seed)
    arms = [f"{arm} with seed {', '.join(map(str, each[:MOST_LISTED]))}{_more(each)}" for arm, each in seeds.items()]
    return f"Finished runs: {'; '.join(arms[:MOST_LISTED])}{_more(arms)}."


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - MOST_LISTED} more" if len(items) > MOST_LISTED else ""
