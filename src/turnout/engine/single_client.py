"""One client at a time on a module of its own: any module, any buffers.

This is the reference that stacking is tested against, and the faster way for models bound by arithmetic, where
several workers run clients side by side with one operation thread each.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from turnout.array_types import Bits
from turnout.data.federation import Slab
from turnout.engine.dropout import KeyedDropout, mask_keys
from turnout.engine.module_probe import draws_masks
from turnout.engine.reduction import Row
from turnout.engine.task import Task
from turnout.engine.vectorised.optimizers import clip_rows, restore
from turnout.engine.watch import Watch
from turnout.errors import ConfigError
from turnout.local.batches import draw_batches
from turnout.local.sgd import SGD
from turnout.models.layout import Slot
from turnout.protocols import Memory, SlotUpdate
from turnout.requests import Fit

Mover = Callable[[int, Sequence[Tensor]], None]  # (step, gradients): move the parameters


class Worker:
    """A private copy of the task's module, on which clients are trained one after another.

    Its parameters are views of one flat vector, so that a model is handed over and taken back in one piece. With
    `pixels_last` convolutions see images with their channels side by side, which suits some networks and not others.
    A module that `draws` from PyTorch's global generator finds it keyed by client: only one such worker runs at a time.
    """

    def __init__(self, task: Task, pixels_last: bool = False, draws: bool = False, watch: Watch | None = None) -> None:
        self.watch = watch or Watch()
        self.layout, self.loss, self.pixels_last, self.draws = task.layout, task.loss, pixels_last, draws
        self.module = copy.deepcopy(task.module)
        self.masks = KeyedDropout()
        self.is_random = draws_masks(task)
        named = dict(self.module.named_parameters())
        self.params = [named[slot.name] for slot in self.layout.slots]
        self.flat = self.layout.flatten(self.module)
        self.change = torch.empty_like(self.flat)
        self.apart: list[tuple[Tensor, Tensor]] = []  # parameters that lie elsewhere, and their place in the vector
        recurrent = {id(p) for m in self.module.modules() if isinstance(m, nn.RNNBase) for p in m.parameters()}
        for slot, param in zip(self.layout.slots, self.params, strict=True):
            place = slot.view(self.flat)
            own = None
            if pixels_last and param.dim() == 4:
                own = param.data.clone(memory_format=torch.channels_last)
            elif slot.transposed and id(param) in recurrent:  # its kernels take long over weights that lie transposed
                own = param.data.clone(memory_format=torch.contiguous_format)
            param.data = place if own is None else own
            if own is not None:
                self.apart.append((own, place))
        counters = [b for b in self.module.buffers() if not b.is_floating_point()]
        self.counters = [(b, b.clone()) for b in counters]  # every client starts from the same

    def train(self, request: Fit, place: int, slab: Slab, is_over: Callable[[], bool] = lambda: False) -> Row:
        """Fit one client of a request; the row's change is good until the next.

        `is_over` ends the work early: it is asked after each step, so at least one is done.
        """
        if not self.draws:
            return self._train(request, place, slab, is_over)
        with torch.random.fork_rng():
            torch.manual_seed(_dropout_seed(request, place))
            return self._train(request, place, slab, is_over)

    def _train(self, request: Fit, place: int, slab: Slab, is_over: Callable[[], bool]) -> Row:
        self.module.train()
        start = _start(request, place)
        self._begin(request, place, start)
        for counter, first in self.counters:
            counter.copy_(first)
        key = request.streams.keys(request.purpose, request.round, request.clients[place])
        mask_key = mask_keys(request, request.clients[place : place + 1])
        local, one = request.local, slice(place, place + 1)
        how = (local.batch_size, local.batches, local.cycle, request.first_step)
        drawn = draw_batches(key, slab.sizes[one], request.steps[one], *how)
        move, state = self._mover(request, place, start if request.own_models else request.model)
        total, done = 0.0, 0
        for step in range(int(request.steps[place])):
            self.watch.check()
            inside = drawn.positions[0, step, : drawn.counts[0, step]] + slab.starts[place]
            where = torch.from_numpy(inside if slab.order is None else slab.order.numpy()[inside].astype(np.int64))
            where = where.to(slab.x.device)
            x, y = slab.x.index_select(0, where), slab.y.index_select(0, where)
            if self.pixels_last and x.dim() == 4:
                x = x.to(memory_format=torch.channels_last)
            try:
                value = self.loss(self._outputs(x, mask_key, step), y).mean()
                grads = torch.autograd.grad(value, self.params, allow_unused=True)
            except Exception as error:
                raise untrainable(self.module, request, place, len(x), error) from error
            move(step, [_dense(g, p) for g, p in zip(grads, self.params, strict=True)])
            total, done = total + float(value.detach()), step + 1
            if is_over():
                break
        buffers = self.layout.flatten_buffers(self.module) if self.layout.buffers else None
        for param, there in self.apart:
            there.copy_(param)
        ends = self.flat[self.layout.columns(request.wants_ends)] if request.wants_ends else None
        change = torch.sub(start, self.flat, out=self.change)
        loss, extra, next_row, kept = total / max(done, 1), None, None, {}
        if state is not None:
            change, extra = self._finished(request, change, state)
            kept = self._kept(request, state)
        if request.private:
            change[self.layout.columns(request.private)] = 0.0
        if state is not None:
            next_row = _next_row(request, place, change)
        return Row(change, loss, buffers, extra, next_row, kept, done, ends)

    def _outputs(self, x: Tensor, mask_key: Bits, step: int) -> Tensor:
        """Return the module's outputs; dropout draws this client's masks of this step."""
        if not self.is_random:
            out: Tensor = self.module(x)
            return out
        self.masks.begin(mask_key, step)
        with self.masks:
            masked: Tensor = self.module(x)
        return masked

    def _begin(self, request: Fit, place: int, start: Tensor) -> None:
        """Hand the module the parameters and the buffers that the client starts from."""
        self.flat.copy_(start)
        for param, there in self.apart:
            param.copy_(there)
        buffers = request.buffers
        if request.buffer_starts is not None:
            buffers = request.buffer_starts.take(request.clients[place : place + 1])[0]
        if buffers is not None:
            self.layout.load_buffers(self.module, buffers)

    def _finished(self, request: Fit, change: Tensor, state: list[Memory]) -> tuple[Tensor, Tensor | None]:
        """Let the solver have the last word on what is sent."""
        pairs = []
        for slot, memory in zip(self.layout.slots, state, strict=True):
            own = {name: _stored(value[0], slot).view(1, -1) for name, value in memory.items()}
            pairs.append(request.local.finish(change[None, slot.start : slot.stop], own))
        extras = [extra[0] for _, extra in pairs if extra is not None]
        return torch.cat([delta[0] for delta, _ in pairs]), torch.cat(extras) if extras else None

    def _kept(self, request: Fit, state: list[Memory]) -> dict[str, Tensor]:
        """Return the entries of the solver's state that the client keeps, one row each."""
        pairs = list(zip(self.layout.slots, state, strict=True))
        return {
            name: torch.cat([_stored(memory[name][0], slot).reshape(-1) for slot, memory in pairs])
            for name in request.kept
        }

    def _mover(self, request: Fit, place: int, anchor: Tensor) -> tuple[Mover, list[Memory] | None]:
        """Return the function that moves the module's parameters by one step of the request's solver."""
        local = request.local
        settings = {name: float(values[place]) for name, values in request.settings.items()}
        values = [p.data for p in self.params]
        moving = [at for at in range(len(values)) if at not in self.layout.places(request.frozen)]
        if isinstance(local, SGD) and not local.features and request.offset is None:

            def plain(step: int, grads: Sequence[Tensor]) -> None:
                for at in moving:
                    values[at].sub_(grads[at], alpha=settings["lr"])

            return plain, None
        rows = [value[None] for value in values]
        state = local.begin(rows)
        for name, table in request.kept.items():
            own = table.take(request.clients[place : place + 1])
            restore(local, state, name, [slot.view(own[0])[None] for slot in self.layout.slots])
        anchors = [slot.view(anchor)[None] for slot in self.layout.slots]
        offsets = None
        if request.offset is not None:
            k_i = _offset(request, place)
            offsets = [slot.view(k_i)[None] for slot in self.layout.slots]

        def general(step: int, grads: Sequence[Tensor]) -> None:
            gradients = [g[None] for g in grads]
            if "clip_norm" in local.features:
                clip_rows([gradients[i] for i in moving], settings["clip_norm"])
            for i in moving:
                offset = None if offsets is None else offsets[i]
                local.update(SlotUpdate(rows[i], gradients[i], anchors[i], state[i], settings, step, offset))

        return general, state


def _dropout_seed(request: Fit, place: int) -> int:
    """Return the seed of one client's masks in this round."""
    purpose = f"dropout from step {request.first_step}" if request.first_step else "dropout"
    return int(request.streams.keys(purpose, request.round, request.clients[place])[0] >> np.uint64(1))


def untrainable(module: nn.Module, request: Fit, place: int, samples: int, error: Exception) -> ConfigError:
    """Return what to say of a batch that the module or the loss cannot take."""
    advice = "Look at what the model or the loss makes of such a batch, or at the client's data."
    if samples == 1:
        advice = "Change local.batch_size so that nobody is left with a batch of one, or use GroupNorm for BatchNorm."
    said = f"{type(error).__name__}: {str(error).partition(chr(10))[0].rstrip('.')}"
    return ConfigError(
        f"{type(module).__name__} needs batches it can be trained on; round {request.round} gave client "
        f"{request.clients[place]} one of {samples} ({said}). {advice}"
    )


def _dense(grad: Tensor | None, param: Tensor) -> Tensor:
    """Return a gradient in full: none is zero, and an embedding's may be sparse."""
    if grad is None:
        return torch.zeros_like(param)
    return grad.to_dense() if grad.is_sparse else grad


def _start(request: Fit, place: int) -> Tensor:
    """Return the parameters that a client starts from."""
    return request.model if request.starts is None else request.starts.take(request.clients[place : place + 1])[0]


def _next_row(request: Fit, place: int, change: Tensor) -> Tensor | None:
    """Return k_i + s_i Δ_i, where it is wanted."""
    offset = request.offset
    if offset is None or offset.scale is None:
        return None
    return torch.add(_offset(request, place), change, alpha=float(offset.scale[place]))


def _offset(request: Fit, place: int) -> Tensor:
    """Return k_i of one client."""
    assert request.offset is not None
    row = torch.empty_like(request.model)[None]
    return request.offset.columns(request.clients[place : place + 1], 0, row)[0]


def _stored(value: Tensor, slot: Slot) -> Tensor:
    return (value.t() if slot.transposed else value).reshape(-1)
