"""Where a block's gradients go."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from turnout.array_types import Floats
from turnout.engine.vectorised.layers import Linear
from turnout.engine.vectorised.scratch import Scratch
from turnout.errors import ConfigError
from turnout.local.sgd import SGD
from turnout.protocols import Local, Memory, SlotUpdate

SMALLEST_FACTOR = 1e-3  # of a velocity held as v/ρᵉ
PIECE_BYTES = 1 << 20  # of rows, gradients and solver state that are moved at once: they stay in cache

Numbers = Mapping[str, Tensor | float]  # settings as they are at this step


class RowSettings:
    """A solver's settings for a block: a float where all rows agree, else a tensor shaped to broadcast."""

    def __init__(self, settings: Mapping[str, Floats], like: Tensor) -> None:
        self.same = {name: float(values[0]) for name, values in settings.items() if (values == values[0]).all()}
        self.varied = {
            name: torch.as_tensor(values, dtype=like.dtype, device=like.device)
            for name, values in settings.items()
            if name not in self.same
        }

    def shaped(self, rows: int, dims: int) -> dict[str, Tensor | float]:
        """Return the settings of the first rows, for parameters of so many dimensions (rows included)."""
        varied = {name: values[:rows].view(rows, *[1] * (dims - 1)) for name, values in self.varied.items()}
        return {**self.same, **varied}


def add_scaled(target: Tensor, source: Tensor, factor: Tensor | float) -> None:
    """Target ← target + factor · source, with one factor for all rows or one per row."""
    if isinstance(factor, Tensor):
        target.addcmul_(source, factor)
    else:
        target.add_(source, alpha=factor)


# what the fused step knows beside lr
FUSED = frozenset({"momentum", "nesterov", "weight_decay", "prox_strength", "lr_decay"})


def is_fused(local: Local) -> bool:
    """Whether the solver's step is SGD's own, with nothing switched on that the fused step does not know."""
    is_plain = isinstance(local, SGD) and type(local).update is SGD.update
    return is_plain and local.features <= FUSED and not local.keeps


class FusedSGD:
    """SGD inside the backward pass: a linear layer's gradient is never written to memory.

    The same step as `local.sgd.sgd_step`, rearranged so that every parameter is touched as few times as can be:

        without momentum  x ← (1 − ηλ − ημ)·x − η·hᵀd + η·k + ημ·anchor
        with momentum     v ← ρ·v + hᵀd + λ·x − k;   x ← (1 − ημ)·x − η·v + ημ·anchor
        with Nesterov's   v as with momentum;        x as without, then x ← x − ηρ·v

    The velocity is held as u = v/ρᵉ, e steps after it was last held as it is: then ρ·v costs no pass over memory.
    """

    def __init__(
        self,
        settings: RowSettings,
        params: Sequence[Tensor],
        anchors: Sequence[Tensor],
        offsets: Mapping[int, Tensor] | None,
        scratch: Scratch,
        unwritten: int | None = None,
        frozen: frozenset[int] = frozenset(),
    ) -> None:
        """Begin a block; the slot `unwritten` is moved by someone else, `frozen` ones stay, offsets are by slot."""
        self.settings, self.anchors, self.offsets, self.frozen = settings, anchors, offsets, frozen
        names = {*settings.same, *settings.varied}
        acts_alone = offsets is not None or bool(names & {"momentum", "weight_decay", "prox_strength"})
        movable = set(range(len(params))) - {unwritten} - frozen if acts_alone else set()
        self.movable = frozenset(movable)  # slots that move even where the loss does not depend on them
        self.missing = movable
        self.velocity: dict[int, Tensor] | None = None
        if "momentum" in names:
            self.velocity = {
                at: scratch.take(f"velocity {at}", tuple(p.shape), p).zero_()
                for at, p in enumerate(params)
                if at != unwritten
            }
        self.params: Sequence[Tensor] = ()
        self.is_steady = not names & {"lr_decay", "momentum"}  # the same numbers at every step
        self.factors: dict[int, Tensor | float] = {}  # ρᵉ, by a parameter's dimensions
        self.by_dim: dict[int, Numbers] = {}

    def enter(self, params: Sequence[Tensor], step: int) -> None:
        """Begin a step on these rows."""
        if params is self.params and self.is_steady:
            return
        self.params = params
        for dims in {p.dim() for p in params}:
            now = self.settings.shaped(params[0].shape[0], dims)
            if "lr_decay" in now:
                now["lr"] = now["lr"] * now["lr_decay"] ** step
            if self.velocity is not None:
                now["factor"] = self._next_factor(dims, now["momentum"])
            in_velocity = self.velocity is not None and "nesterov" not in now
            decay = 0.0 if in_velocity else now.get("weight_decay", 0.0)
            now["keep"] = 1.0 - now["lr"] * decay
            if "prox_strength" in now:
                now["pull"] = now["lr"] * now["prox_strength"]
            self.by_dim[dims] = now

    def _next_factor(self, dims: int, momentum: Tensor | float) -> Tensor | float:
        """Return ρᵉ of this step; where it would get too small, the velocity is brought back to what it is."""
        before = self.factors.get(dims, 1.0)
        if isinstance(before, Tensor) and isinstance(momentum, Tensor):
            before = before[: len(momentum)]
        factor = before * momentum
        if (factor.min() if isinstance(factor, Tensor) else factor) < SMALLEST_FACTOR:
            assert self.velocity is not None
            for slot, velocity in self.velocity.items():
                param = self.params[slot]
                if param.dim() == dims:
                    velocity[: len(param)].mul_(factor)
            factor = factor * 0.0 + 1.0
        self.factors[dims] = factor
        return factor

    def linear(self, layer: Linear, inputs: Tensor, errors: Tensor) -> None:
        """Take hᵀd straight into the parameters, or into the velocity."""
        now, weight = self.by_dim[3], layer.weight
        self.missing.discard(weight)
        if weight in self.frozen:
            pass
        elif self.velocity is not None:
            velocity, factor = self.velocity[weight][: len(errors)], now["factor"]
            if isinstance(factor, float):
                velocity.baddbmm_(*layer.factors(inputs, errors), alpha=1.0 / factor)
            else:
                velocity.baddbmm_(*layer.factors(inputs, errors / factor))
            self._finish(weight, velocity, now)
            if "nesterov" in now:
                self._descend(layer, inputs, errors, now)
            self._roll(weight, velocity, now)
        else:
            self._descend(layer, inputs, errors, now)
        if layer.bias is not None:
            self.plain(layer.bias, errors.sum(1))

    def _descend(self, layer: Linear, inputs: Tensor, errors: Tensor, now: Numbers) -> None:
        """Move a layer's weights by their gradient alone."""
        param, rate, keep = self.params[layer.weight], now["lr"], self._shrink(layer.weight, now)
        if isinstance(rate, float):
            param.baddbmm_(*layer.factors(inputs, errors), beta=keep, alpha=-rate)
        else:  # only the small error rows are scaled
            param.baddbmm_(*layer.factors(inputs, errors * -rate), beta=keep)
        self._correct(layer.weight, now)

    def lookup(self, slot: int, where: Tensor, grads: Tensor) -> None:
        """Move the entries that were looked up, and no others where nothing else acts on them."""
        if slot in self.frozen:
            return
        param = self.params[slot]
        now = self.by_dim[param.dim()]
        rate, keep = now["lr"], now["keep"]
        alone = self.velocity is None and self.offsets is None and "pull" not in now
        if alone and isinstance(rate, float) and keep == 1.0:
            param.view(-1, param.shape[2]).index_add_(0, where, grads, alpha=-rate)
        else:
            self.plain(slot, table_gradient(param, where, grads))

    def plain(self, slot: int, grad: Tensor) -> None:
        """Take a gradient that is already there."""
        if slot in self.frozen:
            return
        self.missing.discard(slot)
        now = self.by_dim[self.params[slot].dim()]
        if self.velocity is not None:
            velocity = self.velocity[slot][: len(grad)]
            add_scaled(velocity, grad, 1.0 / now["factor"])
            self._finish(slot, velocity, now)
            if "nesterov" in now:
                self._step(slot, grad, now)
            self._roll(slot, velocity, now)
        else:
            self._step(slot, grad, now)

    def _step(self, slot: int, grad: Tensor, now: Numbers) -> None:
        """Move a parameter by its gradient alone."""
        keep = self._shrink(slot, now)
        if keep != 1.0:
            self.params[slot].mul_(keep)
        add_scaled(self.params[slot], grad, -now["lr"])
        self._correct(slot, now)

    def _finish(self, slot: int, velocity: Tensor, now: Numbers) -> None:
        """Add decay and offset to the velocity."""
        param = self.params[slot]
        if "weight_decay" in now:
            add_scaled(velocity, param, now["weight_decay"] / now["factor"])
        if self.offsets is not None:
            add_scaled(velocity, self.offsets[slot][: len(param)], -1.0 / now["factor"])

    def _roll(self, slot: int, velocity: Tensor, now: Numbers) -> None:
        """Move by the velocity; with Nesterov momentum, the gradient has moved the parameter already."""
        reach = now["lr"] * now["factor"]
        if "nesterov" in now:
            reach = reach * now["momentum"]
        else:
            self._shrink(slot, now)
        add_scaled(self.params[slot], velocity, -reach)

    def _shrink(self, slot: int, now: Numbers) -> float:
        """Let decay and the pull towards the anchor act, in one pass; return a factor on x that is left to do."""
        param, keep = self.params[slot], now["keep"]
        if "pull" not in now:
            if isinstance(keep, float):
                return keep
            param.mul_(keep)
        elif isinstance(keep, float) and keep == 1.0:
            param.lerp_(self._anchor(slot).expand_as(param), now["pull"])
        else:
            param.mul_(keep - now["pull"])
            add_scaled(param, self._anchor(slot), now["pull"])
        return 1.0

    def _correct(self, slot: int, now: Numbers) -> None:
        """Subtract the offset from the gradient."""
        if self.offsets is not None:
            param = self.params[slot]
            add_scaled(param, self.offsets[slot][: len(param)], now["lr"])

    def _anchor(self, slot: int) -> Tensor:
        anchor = self.anchors[slot]
        return anchor if len(anchor) == 1 else anchor[: len(self.params[slot])]

    def leave(self) -> None:
        """End the step: everything has moved already, but for what the loss does not depend on."""
        for slot in sorted(self.missing):
            self.plain(slot, torch.zeros_like(self.params[slot]))
        self.missing = set(self.movable)


class Collected:
    """Any solver: it moves a parameter as soon as its gradient is there, a few rows at a time.

    A piece of rows is as large as stays in cache with its gradient and the solver's state: neither leaves it between
    the product that makes the gradient and the step that uses it. Where gradients are clipped, the norm needs all of
    them: then they are gathered first.
    """

    def __init__(
        self,
        local: Local,
        settings: RowSettings,
        params: Sequence[Tensor],
        anchors: Sequence[Tensor],
        offsets: Mapping[int, Tensor] | None,
        frozen: frozenset[int] = frozenset(),
    ) -> None:
        self.local, self.settings, self.anchors, self.offsets = local, settings, anchors, offsets
        self.frozen, self.clips = frozen, "clip_norm" in local.features
        self.state = local.begin(params)
        self.sizes = [_piece_size(p, state) for p, state in zip(params, self.state, strict=True)]
        self.grads: dict[int, Tensor] = {}  # those that wait for the norm of all
        self.params: Sequence[Tensor] = ()
        self.by_dim: dict[int, Numbers] = {}
        self.missing: set[int] = set()
        self.step = 0

    def enter(self, params: Sequence[Tensor], step: int) -> None:
        """Begin a step on these rows."""
        if params is not self.params:
            self.by_dim = {dims: self.settings.shaped(len(params[0]), dims) for dims in {1, *(p.dim() for p in params)}}
        self.params, self.step, self.missing = params, step, set(range(len(params))) - self.frozen

    def linear(self, layer: Linear, inputs: Tensor, errors: Tensor) -> None:
        """Move by hᵀd."""
        weight, (left, right) = layer.weight, layer.factors(inputs, errors)
        if self.clips:
            self.plain(weight, torch.bmm(left, right))
        elif weight not in self.frozen:
            self.missing.discard(weight)
            for rows in self._pieces(weight):
                self._update(weight, rows, torch.bmm(left[rows], right[rows]))
        if layer.bias is not None:
            self.plain(layer.bias, errors.sum(1))

    def lookup(self, slot: int, where: Tensor, grads: Tensor) -> None:
        """Move by the gradient of a whole table."""
        self.plain(slot, table_gradient(self.params[slot], where, grads))

    def plain(self, slot: int, grad: Tensor) -> None:
        """Move by the gradient."""
        if slot in self.frozen:
            return
        self.missing.discard(slot)
        if self.clips:
            self.grads[slot] = grad.clone(memory_format=torch.contiguous_format)
            return
        for rows in self._pieces(slot):  # a copy: solvers overwrite it, and it may be another parameter's gradient, too
            self._update(slot, rows, grad[rows].clone(memory_format=torch.contiguous_format))

    def _pieces(self, slot: int) -> list[slice]:
        count, size = len(self.params[slot]), self.sizes[slot]
        return [slice(low, min(low + size, count)) for low in range(0, count, size)]

    def _update(self, slot: int, rows: slice, grad: Tensor) -> None:
        """Let the solver move some rows of one parameter."""
        param, anchor, state = self.params[slot], self.anchors[slot], self.state[slot]
        now = self.by_dim[param.dim()]
        whole = rows.stop - rows.start == len(param)
        if not whole:
            state = {name: value[rows] for name, value in state.items()}
            now = {name: value[rows] if isinstance(value, Tensor) else value for name, value in now.items()}
        before = dict(state)
        self.local.update(
            SlotUpdate(
                param=param if whole else param[rows],
                grad=grad,
                anchor=anchor if len(anchor) == 1 else anchor[rows],
                state=state,
                settings=now,
                step=self.step,
                offset=None if self.offsets is None else self.offsets[slot][rows],
            )
        )
        if not whole:
            for name, value in state.items():
                if value is not before[name]:  # a solver may put a new tensor in place of the old
                    self.state[slot][name][rows] = value

    def finish(self, deltas: Sequence[Tensor | None]) -> tuple[list[Tensor | None], list[Tensor] | None]:
        """Let the solver have the last word on what is sent; return changes and second rows, per slot."""
        states = [{name: value.flatten(1) for name, value in state.items()} for state in self.state]
        pairs = [self.local.finish(d, s) for d, s in zip(deltas, states, strict=True) if d is not None]
        return [delta for delta, _ in pairs], [extra for _, extra in pairs if extra is not None] or None

    def leave(self) -> None:
        """End the step: move what waits, or what the loss does not depend on."""
        for slot in sorted(self.missing):
            self.plain(slot, torch.zeros_like(self.params[slot]))
        if not self.grads:
            return
        slots = sorted(self.grads)
        clip_rows([self.grads[slot] for slot in slots], self.by_dim[1]["clip_norm"])
        for slot in slots:
            for rows in self._pieces(slot):
                self._update(slot, rows, self.grads[slot][rows])
        self.grads = {}


def _piece_size(param: Tensor, state: Memory) -> int:
    """Return how many rows of a parameter are moved at once; all where the solver's state is not one row per row."""
    if any(not isinstance(value, Tensor) or value.shape != param.shape for value in state.values()):
        return len(param)
    if param.device.type != "cpu":
        return len(param)
    return max(1, PIECE_BYTES // (param[0].numel() * param.element_size() * (2 + len(state))))


def table_gradient(param: Tensor, where: Tensor, grads: Tensor) -> Tensor:
    """Return the gradient of all rows' tables from that of the entries that were looked up."""
    table = torch.zeros_like(param).view(-1, param.shape[2])
    return table.index_add_(0, where, grads).view_as(param)


def restore(local: Local, state: Sequence[Memory], name: str, kept: Sequence[Tensor]) -> None:
    """Overwrite an entry of a solver's state, in every slot, with what clients kept."""
    for memory, rows in zip(state, kept, strict=True):
        made = memory.get(name)
        if not isinstance(made, Tensor) or made.shape != rows.shape:
            got = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, Tensor) else "none"
            raise ConfigError(
                f"{type(local).__name__} keeps {name!r}, so its begin needs to make a tensor of that name like each "
                f"parameter, of shape {tuple(rows.shape)}; got {got}. Change begin or keeps.",
                setting="local",
            )
        made.copy_(rows)


def clip_rows(grads: Sequence[Tensor], clip_norm: Tensor | float) -> None:
    """Scale every row's gradient, over all parameters, down to the norm allowed."""
    squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads]).sum(0)
    factor = (clip_norm / squares.sqrt().clamp_min(1e-12)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))
