"""Builds a user's own module from a keyed seed, so that the random draws of its constructor depend on the key alone.

The weights stay as the constructor leaves them: its own initialisation, or weights that it reads from a file.
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
from turnout.models.initialise import MemoryCheck
from turnout.untrusted_input import in_brief


def made(make: Callable[[], object], called: str, generator: torch.Generator) -> nn.Module:
    """Return the module that `make` constructs under global generators with the seed of this generator.

    The state of the global generators is restored afterwards.
    """
    try:
        with keyed_globals(generator.initial_seed()), MemoryCheck():
            module = make()
    except TurnoutError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(
            f"The model {called} cannot be built: {in_brief(error).rstrip('.')}. Change model.", setting="model"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model needs a function that returns an nn.Module; {called} returned {module!r:.80}. Change model.",
            setting="model",
        )
    if has_lazy(module):
        raise ConfigError(waiting("model", type(module).__name__))
    return copy.deepcopy(module).to(generator.device)  # a function may return the same module each time


@contextmanager
def keyed_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, numpy and Python, and restore their states afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002 - user code may draw from it
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


def has_lazy(module: nn.Module) -> bool:
    """Whether a module has lazy parameters or buffers, whose shapes are not known yet."""
    return any(map(is_lazy, (*module.parameters(), *module.buffers())))


def waiting(section: str, called: str) -> str:
    """Return the error message for a module with lazy parameters."""
    return (
        f"{section} needs parameters whose shapes are known; {called} has some that wait for their first input. "
        "Run one sample through it first."
    )
