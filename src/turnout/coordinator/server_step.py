"""One server step, kept only if everything it leaves behind is finite.

    begin    remember the model and the rules' memories; tables of rows hold their writes back
    move     let the server rule move the model along the combined direction
    commit   keep the step, or put everything back and say what would not have been finite

A rule's memory is checked entry by entry; of a table only the rows that the step writes. Of the model the squared norm
must be finite, too: clients that start from a longer model send updates that are not finite.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan, State
from turnout.protocols import Combined, Memory, Moved
from turnout.requests import Trained
from turnout.row_table import RowTable
from turnout.rows import Facts, Step, is_finite

MEMORIES = ("server", "aggregation", "local")
FIELDS = ("model", "buffers", "measured", *MEMORIES)
FIELDS_OF = attrgetter(*FIELDS)
FIRST_ROUNDS = 5  # in which the largest update norm is recorded
MARGIN = 10.0  # a norm so many times the usual one is suspicious; also what is suggested for trust.max_norm
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Before:
    """What a step may change, as it was."""

    values: dict[str, Any]
    tables: tuple[RowTable, ...]


def begin(state: State) -> Before:
    """Begin a step: from here on tables hold their writes back."""
    values = dict(zip(FIELDS, FIELDS_OF(state), strict=True))
    tables = [entry for part in MEMORIES for entry in values[part].values() if isinstance(entry, RowTable)]
    for table in tables:
        table.stage()
    return Before(values, tuple(tables))


def move(plan: Plan, state: State, combined: Combined, facts: Facts, square_norms: Floats | None) -> Moved | None:
    """Take over what the rules remember, and move the model along the direction; None if it is to stay."""
    state.aggregation = _detached(combined.memory)
    if not combined.moves:
        return None
    direction = combined.direction.detach()
    step = Step(direction=direction, coefficients=combined.coefficients, square_norms=square_norms, facts=facts)
    moved = plan.server.advance(state.model, step, state.server)
    state.server = _detached(moved.memory)
    state.model, state.measured = moved.model.detach(), moved.evaluate
    return moved


def commit(state: State, before: Before) -> str | None:
    """Keep what the step changed if all of it is finite; else put everything back and return what is not."""
    wrong = next(_not_finite(state, before), None)
    for table in before.tables:
        table.commit() if wrong is None else table.undo()
    if wrong is not None:
        for name, value in before.values.items():
            setattr(state, name, value)
    return wrong


def remember(state: State, part: str, new: Memory) -> tuple[str, ...]:
    """Add to what the rule of one part remembers; what is not finite is left out, and returned as an event."""
    if not new:
        return ()
    old: Memory = getattr(state, part)
    wrong = [name for name, value in new.items() if not _is_sound(value)]
    setattr(state, part, {**old, **{name: value for name, value in _detached(new).items() if name not in wrong}})
    return tuple(f"{part} memory {name!r} is not finite and was left as it was" for name in wrong)


def dropped(what: str, answer: Trained | None) -> str:
    """Return the event of a step that was dropped, with the clients whose updates are far longer than the others."""
    said = f"the server step was dropped: {what} would not be finite"
    norms = None if answer is None or not len(answer.clients) else norms_of(answer.delta, answer.square_norms)
    if answer is None or norms is None:
        return f"{said}; set trust.max_norm to have the client found"
    usual = float(np.median(norms))
    long = np.flatnonzero(norms > MARGIN * usual)
    named = long if len(long) else np.array([int(np.argmax(norms))])
    named_norms = ", ".join(f"client {answer.clients[at]}: {norms[at]:.4g}" for at in named[:MOST_NAMED])
    advice = f"; trust.max_norm = {MARGIN * usual:.2g} would reject {'it' if len(long) == 1 else 'them'}"
    return f"{said}; largest update norms {named_norms}, median {usual:.4g}{advice if len(long) else ''}"


def norms_of(delta: Tensor | None, square_norms: Floats | None) -> Floats | None:
    """Return the norm of each update, where there are rows or somebody measured them."""
    if square_norms is not None:
        return np.sqrt(square_norms)
    if delta is None:
        return None
    norms: Floats = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).cpu().numpy()
    return norms


def first_norms(direction: Tensor, draws: Ids, norms: Floats | None) -> dict[str, float]:
    """Return the largest update norm as a metric, for the first rounds.

    Where only the sum u of the updates came, it is ‖u‖√|S|: what each would be if they were orthogonal and alike.
    """
    if not len(draws):
        return {}
    if norms is None:
        length = float(torch.linalg.vector_norm(direction, dtype=torch.float64))
        return {"update_norm": length * math.sqrt(int(draws.sum()))}
    return {"update_norm": float(norms.max())}


def _not_finite(state: State, before: Before) -> Iterator[str]:
    """Yield what the step made that is not finite."""
    model = state.model
    wide = model if model.dtype in (torch.float32, torch.float64) else model.float()
    if model is not before.values["model"] and not math.isfinite(torch.dot(wide, wide).item()):
        yield "the model's squared norm"
    if state.measured is not None and not is_finite(state.measured):
        yield "the model to evaluate"
    if state.buffers is not None and state.buffers is not before.values["buffers"] and not is_finite(state.buffers):
        yield "the model's running statistics"
    for part in MEMORIES:
        old, now = before.values[part], getattr(state, part)
        if now is old and not before.tables:
            continue
        for name, value in now.items():
            unchanged = value is old.get(name) and not isinstance(value, RowTable)
            if not unchanged and not _is_sound(value):
                yield f"{part} memory {name!r}"


def _is_sound(value: Any) -> bool:
    """Whether an entry of a rule's memory has only finite numbers; of a table, whether the rows just written have."""
    if isinstance(value, RowTable):
        return all(is_finite(rows) for rows in value.written())
    if isinstance(value, Tensor):
        return not value.is_floating_point() or is_finite(value.detach())
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    if isinstance(value, list | dict):
        return all(map(_is_sound, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _detached(memory: Memory) -> Memory:
    """Return a memory whose tensors belong to no graph."""
    return {name: value.detach() if isinstance(value, Tensor) else value for name, value in memory.items()}
