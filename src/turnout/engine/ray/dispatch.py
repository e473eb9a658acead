"""One call's blocks: handed out to workers, done again where a worker died, and put together in their order."""

import warnings
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import torch

from turnout.engine.ray.blocks import Block, blocks_of, part
from turnout.engine.ray.cluster import Cluster, Remote
from turnout.engine.ray.merging import Merge
from turnout.engine.ray.task_store import TaskStore
from turnout.engine.ray.transport import as_array, as_tensor, key_of, packed, unpacked
from turnout.engine.task import Question
from turnout.engine.watch import Interrupted, Watch
from turnout.errors import EngineError
from turnout.requests import Answer

AHEAD = 2  # blocks that a worker is handed at once, so that it need not wait for the next
MOST_DEATHS = 4  # of workers, with one block: it is the block's own fault then


class Dispatch:
    """The blocks of one call: those that wait, those at work, and those that came back before their turn."""

    def __init__(self, cluster: Cluster, tasks: TaskStore, questions: Sequence[Question], watch: Watch) -> None:
        self.cluster, self.tasks, self.questions, self.watch = cluster, tasks, questions, watch
        self.numbers = tasks.numbers_of([task for task, _ in questions])
        self.blocks: list[Block] = blocks_of(questions)
        self.waiting = deque(range(len(self.blocks)))
        self.at_work: dict[Any, tuple[Remote, int]] = {}
        self.arrived: dict[int, list[Any]] = {}
        self.merges = [Merge(*question) for question in questions]
        self.merged = 0  # blocks, in their order
        self.deaths: Counter[int] = Counter()
        self.shared: dict[Any, tuple[torch.Tensor, Any]] = {}  # tensors of this call in the object store

    def answers(self) -> list[Answer]:
        """Return the answers when all blocks are done; raise Interrupted if the watch asks for it."""
        self.watch.begin(self.questions[0][1])
        self.watch.expect(len(self.blocks))
        for worker in self.cluster.workers:
            worker.at_work = 0  # of a call that was given up
            if gone := worker.tasks.difference(self.tasks.parcels):
                worker.actor.forget.remote(gone)
                worker.tasks -= gone
        while self.merged < len(self.blocks):
            if self.watch.is_asked():
                raise Interrupted
            self._hand_out()
            for ref in self.cluster.finished(list(self.at_work)):
                self._take_in(ref)
            while self.merged in self.arrived:
                self._merge(self.arrived.pop(self.merged))
        return [merge.answer() for merge in self.merges]

    def _hand_out(self) -> None:
        """Give every worker something to do; each has one block before any has two."""
        for room in range(1, AHEAD + 1):
            for worker in self.cluster.workers:
                if self.waiting and worker.is_ready and worker.at_work < room:
                    self._send(worker, self.waiting.popleft())

    def _send(self, worker: Remote, number: int) -> None:
        pieces = [(self.questions[q][1], self.numbers[q], items) for q, items in self.blocks[number]]
        for task in dict.fromkeys(task for _, task, _ in pieces):
            if task not in worker.tasks:
                worker.actor.load.remote(task, *self.tasks.parcel(task))
                worker.tasks.add(task)
        text, tensors = packed([(task, part(request, items)) for request, task, items in pieces])
        ref = worker.actor.answer.remote(text, *(self._reference(tensor) for tensor in tensors))
        worker.at_work += 1
        self.at_work[ref] = worker, number

    def _reference(self, tensor: torch.Tensor) -> Any:
        """Return a tensor in the object store, where it is put once in a call."""
        key = key_of(tensor)
        if key not in self.shared:
            self.shared[key] = tensor, self.cluster.ray.put(as_array(tensor))
        return self.shared[key][1]

    def _take_in(self, ref: Any) -> None:
        """Take what a worker sent; where it died, let another do its block."""
        worker, number = self.at_work.pop(ref)
        worker.at_work -= 1
        try:
            text, arrays = self.cluster.ray.get(ref)
        except self.cluster.ray.exceptions.RayTaskError as error:
            raise EngineError(f"A worker could not read its block: {error.cause}") from error
        except self.cluster.ray.exceptions.RayError as error:
            self._do_again(worker, number, error)
            return
        self.arrived[number] = unpacked(text, [as_tensor(array) for array in arrays])

    def _do_again(self, worker: Remote, number: int, error: Exception) -> None:
        self.cluster.bury(worker, error)
        self.waiting.appendleft(number)
        self.deaths[number] += 1
        if self.deaths[number] >= MOST_DEATHS:
            task, request = self.questions[self.blocks[number][0].question]
            said = str(error).strip().partition("\n")[0]
            raise EngineError(
                f"Workers need enough memory for a block; {MOST_DEATHS} in a row died with a block of round "
                f"{request.round} ({type(task.module).__name__}): {said} "
                "Use fewer workers on each node, or a smaller local.batch_size."
            )

    def _merge(self, arrived: list[Any]) -> None:
        """Add the block whose turn it is."""
        outcome, told = arrived
        for message in told:
            if message not in self.cluster.warned:
                self.cluster.warned.add(message)
                warnings.warn(message, stacklevel=2)
        if isinstance(outcome, Exception):
            raise outcome
        for (question, items), answer in zip(self.blocks[self.merged], outcome, strict=True):
            self.merges[question].add(items, answer)
        self.merged += 1
        self.watch.check()
