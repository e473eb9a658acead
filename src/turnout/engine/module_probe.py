"""What a module is like, found out once by trying it on one sample."""

import copy

import numpy as np
import torch
from torch import Tensor

from turnout.data.federation import Samples
from turnout.engine.evaluation import Nowhere
from turnout.engine.single_client import key_dropout
from turnout.engine.task import Task
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.lowering import Batch, Mapped


def draws_globally(task: Task) -> bool:
    """Whether the module draws from PyTorch's global generators, as F.dropout does; tried on one sample."""
    module = copy.deepcopy(task.module).train()
    key_dropout(module, torch.Generator())
    x = first_sample(task).x
    before = _global_states()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            module(x.expand(2, *x.shape[1:]))
            return not all(map(torch.equal, before, _global_states()))
    except Exception:  # what the module cannot do is told where it is asked to
        return False


def mixes_samples(task: Task) -> bool:
    """Whether what a module makes of a sample depends on the others in its batch; tried on one sample.

    A stack pads batches of unequal size, and padding is left out of the loss: it must not be felt otherwise.
    """
    module = copy.deepcopy(task.module).train()
    if any(getattr(layer, "scale_grad_by_freq", False) for layer in module.modules()):
        return True
    x = first_sample(task).x
    other = x + 1 if x.is_floating_point() else torch.zeros_like(x)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            alone, beside = (module(torch.cat([x, each]))[0] for each in (x, other))
            return not torch.allclose(alone, beside, rtol=1e-3, atol=1e-6)
    except Exception:  # what the module cannot do is told where it is asked to
        return True


def first_sample(task: Task) -> Samples:
    """Return the first sample of the first client."""
    slab = task.federation.train.fetch(np.zeros(1, dtype=np.int64))
    row = int(slab.starts[0]) if slab.order is None else int(slab.order[int(slab.starts[0])])
    return Samples(slab.x[row : row + 1], slab.y[row : row + 1])


def _global_states() -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def try_out(mapped: Mapped, task: Task) -> None:
    """Run two rows of two samples of the first client, to see whether the module can be mapped."""
    sample, flat = first_sample(task), task.layout.flatten(task.module)
    params = [
        flat[s.start : s.stop].view(1, *s.stored_shape).repeat(2, *[1] * len(s.stored_shape)) for s in task.layout.slots
    ]
    x, y = (t.expand(2, 2, *t.shape[1:]) for t in (sample.x, sample.y))
    mapped.run(params, Batch(x, y, None), Nowhere(), LossAccumulator(2, x.device))
