"""A worker: a process of the cluster that answers blocks with an engine of its own."""

import socket
import traceback
import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from turnout.engine.fingerprint import machine_fingerprint
from turnout.engine.ray.blocks import question_of
from turnout.engine.ray.transport import Array, as_array, as_tensor, packed, unpacked
from turnout.engine.task import Task
from turnout.engine.vectorised.engine import Vectorised
from turnout.errors import ConfigError, TurnoutError

Reply = tuple[bytes, list[Array]]


class Worker:
    """Answers blocks one after another, each in one fixed way with one operation thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.engine = Vectorised(deterministic=True)
        self.tasks: dict[int, Task | Exception] = {}  # by the driver's number; an error: it cannot be read here
        self.tensors: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # shared by tasks that share samples

    def describe(self) -> dict[str, Any]:
        """Return where this worker runs, and on which software."""
        import ray  # only a worker of a cluster is asked

        node = ray.get_runtime_context().get_node_id()
        return {"host": socket.gethostname(), "node": node, **machine_fingerprint(self.engine.device)}

    def load(self, number: int, text: bytes, tokens: Sequence[int], *arrays: Array) -> None:
        """Keep a task; tensors of one token are one tensor, whichever task they come with."""
        tensors = []
        for token, array in zip(tokens, arrays, strict=True):
            tensor = self.tensors.get(token)
            tensors.append(as_tensor(array) if tensor is None else tensor)
            self.tensors[token] = tensors[-1]
        try:
            self.tasks[number] = unpacked(text, tensors)
        except Exception as error:  # whatever reading code that is not here raises
            self.tasks[number] = ConfigError(
                f"Workers need the code of the model and the loss; {socket.gethostname()} cannot read it "
                f"({type(error).__name__}: {error}). Install the package that it is in on every node."
            )

    def forget(self, numbers: Iterable[int]) -> None:
        """Let tasks go."""
        for number in numbers:
            self.tasks.pop(number, None)

    def answer(self, text: bytes, *arrays: Array) -> Reply:
        """Return the answers to a block of (number of the task, request), or the error, and what was warned of."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            try:
                block = unpacked(text, [as_tensor(array) for array in arrays])
                outcome: Any = self.engine.answer([question_of(self._task(number), asked) for number, asked in block])
            except Exception as error:
                outcome = _portable(error)
        told = [(str(each.message), issubclass(each.category, UserWarning)) for each in warned]
        reply = packed((outcome, [message for message, is_for_user in told if is_for_user]))
        return reply.text, [as_array(tensor) for tensor in reply.tensors]

    def _task(self, number: int) -> Task:
        task = self.tasks[number]
        if isinstance(task, Exception):
            raise task
        return task


def _portable(error: Exception) -> Exception:
    """Return an error that another process can read; of one that is nobody's message, with where it was raised."""
    if not isinstance(error, TurnoutError):
        error.add_note("".join(["It was raised in a worker:\n", *traceback.format_exception(error)]))
    try:
        packed(error)
    except Exception:  # it refers to something that cannot be sent
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
