"""A module of the user's own, made under a key: what its constructor draws depends on the key alone.

Its weights are whatever the constructor leaves: its own initialisation, or weights that it reads from a file.
"""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from turnout.errors import ConfigError, TurnoutError
from turnout.models.initialise import Counted
from turnout.untrusted_input import in_brief


def made(make: Callable[[], object], called: str, generator: torch.Generator) -> nn.Module:
    """Return the module that `make` constructs, with the global generators set by this one's seed and put back."""
    try:
        with keyed_globals(generator.initial_seed()), Counted():
            module = make()
    except TurnoutError:
        raise
    except Exception as error:  # whatever the user's own code raises
        raise ConfigError(f"The model {called} cannot be made: {in_brief(error).rstrip('.')}. Change model.") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model needs a function that returns an nn.Module; {called} returned {module!r:.80}. Change model."
        )
    if has_lazy(module):
        raise ConfigError(waiting("model", type(module).__name__))
    return copy.deepcopy(module).to(generator.device)  # a function may return the same module each time


@contextmanager
def keyed_globals(seed: int) -> Iterator[None]:
    """Set the global generators of PyTorch, numpy and Python by a seed, and put them back afterwards."""
    by_numpy, by_python = np.random.get_state(), random.getstate()  # noqa: NPY002 - what the user may draw from
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(by_numpy)  # noqa: NPY002
            random.setstate(by_python)


def has_lazy(module: nn.Module) -> bool:
    """Whether a module has parameters or buffers whose shapes are not known yet."""
    return any(map(is_lazy, (*module.parameters(), *module.buffers())))


def waiting(section: str, called: str) -> str:
    """Return what to say of a module with parameters whose shapes are not known yet."""
    return (
        f"{section} needs parameters whose shapes are known; {called} has some that wait for their first input. "
        "Run one sample through it first."
    )
