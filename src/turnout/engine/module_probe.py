"""What a module is like, found out once by trying it on one sample."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from turnout.data.federation import Samples, positions
from turnout.engine.dropout import KeyedDropout
from turnout.engine.task import Task
from turnout.engine.vectorised.layers import Linear, Nowhere, Pass, Step
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.lowering import Batch, Lowered, Mapped, Program
from turnout.engine.vectorised.normalisation import BATCH_NORMS

ROWS, SAMPLES = 2, 3  # of a trial
NOISE = 0.1  # of a trial's parameters, beside their own size: each row has parameters of its own
AGREEMENT = {torch.float64: 1e-8, torch.float32: 2e-3}  # of gradients, beside the largest of a parameter


def draws_globally(task: Task) -> bool:
    """Whether the module draws from PyTorch's global generators, as F.dropout does; tried on one sample."""
    module = copy.deepcopy(task.module).train()
    x = first_sample(task).x
    before = _global_states()
    try:
        with torch.no_grad(), torch.random.fork_rng(), KeyedDropout():
            module(x.expand(2, *x.shape[1:]))
            return not all(map(torch.equal, before, _global_states()))
    except Exception:  # what the module cannot do is told where it is asked to
        return False


def draws_masks(task: Task) -> bool:
    """Whether the module calls dropout that is drawn by key; tried on one sample."""
    module, x = copy.deepcopy(task.module).train(), first_sample(task).x
    try:
        masks = KeyedDropout()
        with torch.no_grad(), torch.random.fork_rng(), masks:
            module(x.expand(2, *x.shape[1:]))
            return masks.calls > 0
    except Exception:  # what the module cannot do is told where it is asked to
        return True


def mixes_samples(task: Task) -> bool:
    """Whether what a module makes of a sample depends on the others in its batch; tried on one sample.

    A stack pads batches of unequal size, and padding is left out of the loss: it must not be felt otherwise. Batch
    normalisation leaves padding out by itself.
    """
    module = copy.deepcopy(task.module).train()
    for layer in module.modules():
        if isinstance(layer, BATCH_NORMS):
            layer.eval()
    if any(getattr(layer, "scale_grad_by_freq", False) for layer in module.modules()):
        return True
    x = first_sample(task).x
    other = x + 1 if x.is_floating_point() else torch.zeros_like(x)
    try:
        masks, outputs = KeyedDropout(), []
        with torch.no_grad(), torch.random.fork_rng(), masks:
            for each in (x, other):
                masks.begin(np.zeros(1, dtype=np.uint64), 0)
                outputs.append(module(torch.cat([x, each]))[0])
            return not torch.allclose(outputs[0], outputs[1], rtol=1e-3, atol=1e-6)
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
    mapped.run(params, Batch(x, y, None), Nowhere(), LossAccumulator(2, x.device), Step())


def agrees(program: Program, task: Task) -> bool:
    """Whether a program gives the module's own gradients: rows with parameters of their own, one with padding.

    Whatever goes wrong on the way counts as no: the module then runs in another way, and says what it has to say there.
    """
    try:
        samples, models, weights = _trial_samples(task), _trial_models(task), _trial_weights(task)
        step = Step(0, np.arange(ROWS, dtype=np.uint64), _trial_buffers(task))
        found = _Found(task.layout.size, models)
        params = [models[:, s.start : s.stop].reshape(ROWS, *s.stored_shape) for s in task.layout.slots]
        program.run(params, Batch(*samples, weights), found, LossAccumulator(ROWS, models.device), step)
        expected = torch.stack([_gradient(task, models[row], samples, weights, row) for row in range(ROWS)])
    except Exception:  # a trial: what the module or the loss cannot do is said where it is asked to
        return False
    tolerance = AGREEMENT.get(models.dtype, AGREEMENT[torch.float32])
    largest = expected.abs().amax(1, keepdim=True)
    return bool(((found.grads(task) - expected).abs() <= tolerance * largest + 1e-12).all())


def changes_samples(lowered: Lowered, task: Task) -> bool:
    """Whether a lowered module writes to its inputs, which may be the store of samples itself."""
    x = _trial_samples(task)[0].flatten(0, 1)
    before = x.clone()
    try:
        lowered.inputs(x)
    except Exception:  # a trial: what the module cannot do is said where it is asked to
        return True
    return not torch.equal(x, before)


def gives_same_outputs(lowered: Lowered, task: Task, module: nn.Module) -> bool:
    """Whether a lowered module gives the outputs of the module as it is, for rows with parameters of their own."""
    try:
        x, models = _trial_samples(task)[0][0], _trial_models(task)
        params = [models[:, s.start : s.stop].reshape(ROWS, *s.stored_shape) for s in task.layout.slots]
        with torch.no_grad():
            run = Pass(params, Nowhere(), torch.zeros(()), ROWS)
            mine = lowered.forward(run, [for_rows(each, ROWS) for each in lowered.inputs(x)])
            theirs = [torch.func.functional_call(module, task.layout.views(model), (x,)) for model in models]
        expected = torch.cat(theirs)
        tolerance = AGREEMENT.get(models.dtype, AGREEMENT[torch.float32])
        return mine.shape == expected.shape and torch.allclose(mine, expected, rtol=tolerance, atol=tolerance)
    except Exception:  # a trial: what the module cannot do is said where it is asked to
        return False


def for_rows(samples: Tensor, rows: int) -> Tensor:
    """Return the same samples for every row, (rows · samples, …)."""
    return samples.repeat(rows, *[1] * (samples.dim() - 1))


class _Found:
    """A sink that keeps the gradients."""

    def __init__(self, size: int, like: Tensor) -> None:
        self.by_slot: dict[int, Tensor] = {}
        self.like, self.size = like, size

    def linear(self, layer: Linear, inputs: Tensor, errors: Tensor) -> None:
        """Keep hᵀd."""
        self.by_slot[layer.weight] = torch.bmm(*layer.factors(inputs, errors))
        if layer.bias is not None:
            self.by_slot[layer.bias] = errors.sum(1)

    def lookup(self, slot: int, where: Tensor, grads: Tensor) -> None:
        """Keep the gradient as one table after another."""
        width = grads.shape[1]
        table = grads.new_zeros(self.like.numel(), width)
        self.by_slot[slot] = table.index_add_(0, where, grads)

    def plain(self, slot: int, grad: Tensor) -> None:
        """Keep the gradient."""
        self.by_slot[slot] = grad

    def grads(self, task: Task) -> Tensor:
        """Return all gradients, one row each; zero where there is none."""
        rows = torch.zeros_like(self.like)
        for at, grad in self.by_slot.items():
            slot = task.layout.slots[at]
            rows[:, slot.start : slot.stop] = grad.reshape(-1)[: ROWS * (slot.stop - slot.start)].view(ROWS, -1)
        return rows


def _trial_samples(task: Task) -> tuple[Tensor, Tensor]:
    """Return samples of the first clients, (rows, samples, …); few of them come again."""
    slab = task.federation.train.fetch(np.arange(min(task.federation.num_clients, ROWS * SAMPLES)))
    where = positions(slab)
    where = where[torch.linspace(0, len(where) - 1, ROWS * SAMPLES).long()]
    return tuple(t[where].view(ROWS, SAMPLES, *t.shape[1:]) for t in (slab.x, slab.y))  # type: ignore[return-value]


def _trial_models(task: Task) -> Tensor:
    """Return a row of parameters each, close to the module's own."""
    flat, generator = task.layout.flatten(task.module), torch.Generator().manual_seed(0)
    noise = torch.randn(ROWS, len(flat), generator=generator).to(flat)
    return flat + NOISE * noise * flat.abs().mean().clamp_min(1e-3)


def _trial_weights(task: Task) -> Tensor:
    """Return weights of samples: the last of the last row is padding."""
    weights = torch.full((ROWS, SAMPLES), 1.0 / SAMPLES, dtype=task.layout.flatten(task.module).dtype)
    weights[-1] = 1.0 / (SAMPLES - 1)
    weights[-1, -1] = 0.0
    return weights


def _trial_buffers(task: Task) -> list[Tensor]:
    buffers = dict(task.module.named_buffers())
    return [buffers[slot.name].expand(ROWS, *slot.shape).clone() for slot in task.layout.buffers]


def _gradient(task: Task, model: Tensor, samples: Sequence[Tensor], weights: Tensor, row: int) -> Tensor:
    """Return the module's own gradient for one row."""
    module = task.layout.load(copy.deepcopy(task.module).train(), model)
    count = int((weights[row] > 0).sum())
    x, y = (each[row, :count] for each in samples)
    masks = KeyedDropout()
    masks.begin(np.array([row], dtype=np.uint64), 0)
    with masks:
        value = task.loss(module(x), y).mean()
    named = dict(module.named_parameters())
    params = [named[slot.name] for slot in task.layout.slots]
    grads = torch.autograd.grad(value, params, allow_unused=True)
    pieces = []
    for slot, param, grad in zip(task.layout.slots, params, grads, strict=True):
        full = torch.zeros_like(param) if grad is None else grad.to_dense() if grad.is_sparse else grad
        pieces.append((full.t() if slot.transposed else full).reshape(-1))
    return torch.cat(pieces)
