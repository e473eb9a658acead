"""The default engine: clients as rows of a stack, several runs at once.

Questions that are open at the same time, of whatever run, are grouped by model and local solver family and trained
in one sweep of blocks. Each run's changes are summed block by block, so memory does not grow with the cohort. Models
bound by arithmetic run one client at a time on several workers instead. Which way is guessed from shapes, refined while
real rounds run, and remembered.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from turnout.data.federation import Slab
from turnout.engine.evaluation import Evaluator
from turnout.engine.fingerprint import machine_fingerprint
from turnout.engine.module_probe import draws_globally
from turnout.engine.operation_threads import SMALL, operation_threads
from turnout.engine.reduction import Gather
from turnout.engine.single_client import Worker
from turnout.engine.task import Question, Task, samples_of
from turnout.engine.vectorised.autotune import (
    Execution,
    Remembered,
    candidates,
    cores,
    evenly,
    guess,
    most_threads,
    tuning_key,
)
from turnout.engine.vectorised.jobs import Jobs, block_bounds, collect_jobs
from turnout.engine.vectorised.kernels import Kernel, kernels_of
from turnout.engine.vectorised.malloc_tuning import keep_freed_memory
from turnout.engine.vectorised.scratch import Scratch
from turnout.engine.vectorised.tuning import REMEMBERED, Tuning, tuning_of
from turnout.engine.watch import TooSlowError, Watch
from turnout.requests import Answer, EngineRequest, Evaluate, Fit, Trained


class Prepared:
    """A module made ready: how to stack it, how to measure it, and workers to run it on."""

    def __init__(self, task: Task, watch: Watch) -> None:
        self.task, self.watch = task, watch
        self.evaluator = Evaluator(task, watch)
        kernels = kernels_of(task)
        self.kernels, self.stored, self.on_stored = kernels.on_samples, kernels.stored, kernels.on_stored
        self.draws = not self.kernels and draws_globally(task)  # from one generator: not side by side
        self.idle: dict[bool, list[Worker]] = {False: [], True: []}  # by whether they take pixels last

    def on_worker(self, pixels_last: bool, run: Callable[[Worker], None]) -> None:
        """Run something on a worker that nobody else is using."""
        idle = self.idle[pixels_last]
        worker = idle.pop() if idle else Worker(self.task, pixels_last, self.draws, self.watch)
        try:
            run(worker)
        finally:
            idle.append(worker)


class Vectorised:
    """Clients as rows. `block`, `workers` and `threads` fix what is otherwise guessed and refined.

    With `deterministic`, nothing is refined or remembered: how to run follows from the model and the cohort alone, on
    the CPU with one worker and one thread.
    """

    name = "vectorised"

    def __init__(
        self,
        device: str = "auto",
        *,
        block: int | None = None,
        workers: int | None = None,
        threads: int | None = None,
        stack: bool | None = None,
        deterministic: bool = False,
    ) -> None:
        self.deterministic = deterministic
        self.device = torch.device("cpu") if deterministic else pick_device(device)
        self.watch = Watch()
        if self.device.type == "cpu":
            keep_freed_memory()
        self.fixed = (block, workers, threads, stack)
        self.prepared: dict[str, Prepared] = {}  # by the kind of a task
        self.remembered = Remembered()
        self.tunings: dict[str, Tuning] = {}  # by the kind of work
        self.restored: dict[str, Mapping[str, Any]] = {}  # of work that a journal knows and that is not met yet
        self.pool: ThreadPoolExecutor | None = None
        self.own = threading.local()  # each worker thread's scratch

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question; questions of a kind are answered together."""
        answers: list[Answer] = [None] * len(questions)
        groups: dict[Any, list[int]] = {}
        for at, (task, request) in enumerate(questions):
            groups.setdefault(group_key(task, request), []).append(at)
        for members in groups.values():
            tasks = [questions[at][0] for at in members]
            requests = [questions[at][1] for at in members]
            for at, answer in zip(members, self._answer_group(tasks, requests), strict=True):
                answers[at] = answer
        return answers

    def fingerprint(self) -> dict[str, Any]:
        """Return this machine and its software; how it runs each kind of work is its tuning."""
        return machine_fingerprint(self.device)

    def tuning(self) -> dict[str, dict[str, Any]]:
        """Return how it runs each kind of work, and why; of a search, also the way of each of its rounds."""
        known = {**self.restored, **{key: tuning.plain() for key, tuning in self.tunings.items()}}
        return {key: dict(known[key]) for key in sorted(known)}

    def use_tuning(self, tuning: Mapping[str, Mapping[str, Any]]) -> None:
        """Run every round as it was run before."""
        for known in tuning.values():
            tuning_of(known)  # raises for what is none
        self.restored = dict(tuning)
        self.tunings = {key: mine for key, mine in self.tunings.items() if key not in tuning}
        for mine in self.tunings.values():
            mine.rounds.clear()  # of another study

    @property
    def is_searching(self) -> bool:
        """Whether it may still try other ways for work that it has met."""
        return any(tuning.search is not None for tuning in self.tunings.values())

    def close(self) -> None:
        """End the worker threads; the next question starts them anew."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.shutdown()

    def _answer_group(self, tasks: list[Task], requests: list[Any]) -> Sequence[Answer]:
        prepared = self._prepare(tasks[0])
        first = requests[0]
        self.watch.begin(first)
        single, alone = prepared.evaluator.single(first), self.deterministic or prepared.task.layout.size < SMALL
        if isinstance(first, Evaluate) or single is not None:
            with operation_threads(1 if alone else most_threads()):
                if single is None:
                    return prepared.evaluator.evaluate(tasks, requests)
                return [single(task, request) for task, request in zip(tasks, requests, strict=True)]
        slabs = [samples_of(task, request) for task, request in zip(tasks, requests, strict=True)]
        return self._train_tuned(prepared, requests, slabs)

    def _train_tuned(self, prepared: Prepared, requests: list[Fit], slabs: list[Slab]) -> list[Trained]:
        """Train in the way of this round, and note how long it took; a way that takes too long is given up."""
        tuning, round = self._tuning(prepared, requests), requests[0].round
        client_steps = sum(int(request.steps.sum()) for request in requests)
        execution, most = tuning.trial(self.watch, round)
        started = time.perf_counter()
        self.watch.deadline = started + most * client_steps
        try:
            trained = self._train(prepared, requests, slabs, execution)
        except TooSlowError:
            self.watch.deadline = math.inf
            execution = tuning.give_up(self.watch, round, time.perf_counter() - started)
            return self._train(prepared, requests, slabs, execution)
        finally:
            self.watch.deadline = math.inf
        tuning.add(execution, time.perf_counter() - started, client_steps)
        return trained

    def _prepare(self, task: Task) -> Prepared:
        if task.kind not in self.prepared:
            self.prepared[task.kind] = Prepared(task, self.watch)  # holds the task: its module lives as long
        return self.prepared[task.kind]

    def _train(self, prepared: Prepared, requests: list[Fit], slabs: list[Slab], execution: Execution) -> list[Trained]:
        gather = Gather(prepared.task.layout, requests)
        if prepared.draws:
            execution = replace(execution, workers=1)
        with operation_threads(execution.threads):
            if execution.stacked:
                kernels = prepared.kernels
                if prepared.stored is not None and all(map(prepared.stored.fits, slabs)):
                    kernels, slabs = prepared.on_stored, [prepared.stored.of(slab) for slab in slabs]
                self._run_blocks(kernels, collect_jobs(requests, slabs), execution, gather)
            else:
                self._run_alone(prepared, requests, slabs, execution, gather)
        return gather.answers()

    def _run_blocks(self, kernels: Sequence[Kernel], jobs: Jobs, execution: Execution, gather: Gather) -> None:
        bounds = block_bounds(jobs, evenly(len(jobs), execution))
        parts = [gather.part() for _ in bounds]
        self.watch.expect(sum(int(jobs.steps[low:high].max()) for low, high in bounds))

        def run(number: int) -> None:
            low, high = bounds[number]
            block = jobs if (low, high) == (0, len(jobs)) else jobs.take(np.arange(low, high))
            part, kernel = parts[number], next(each for each in kernels if each.supports(block))
            part.add_block(kernel.run(block, self._scratch(), part.output_buffers(block), self.watch))

        self._side_by_side(run, len(bounds), execution.workers)
        for part in parts:
            gather.merge(part)

    def _scratch(self) -> Scratch:
        """Return this thread's own scratch."""
        if not hasattr(self.own, "scratch"):
            self.own.scratch = Scratch()
        scratch: Scratch = self.own.scratch
        return scratch

    def _run_alone(
        self, prepared: Prepared, requests: list[Fit], slabs: list[Slab], execution: Execution, gather: Gather
    ) -> None:
        rows = [(r, p) for r, request in enumerate(requests) for p in range(len(request.clients))]
        rows.sort(key=lambda row: -int(requests[row[0]].steps[row[1]]))
        self.watch.expect(sum(int(request.steps.sum()) for request in requests))
        parts = [gather.part() for _ in range(execution.workers)]
        count = execution.workers
        turns = [rows[worker::count] for worker in range(count)]  # fixed: sums do not depend on who is faster

        def run(number: int) -> None:
            def train(worker: Worker) -> None:
                for r, p in turns[number]:
                    parts[number].add_row(r, p, worker.train(requests[r], p, slabs[r]))

            prepared.on_worker(execution.pixels_last, train)

        self._side_by_side(run, execution.workers, execution.workers)
        for part in parts:
            gather.merge(part)

    def _side_by_side(self, run: Callable[[int], None], count: int, workers: int) -> None:
        if workers == 1 or count == 1:
            for number in range(count):
                run(number)
            return
        if self.pool is None:
            self.pool = ThreadPoolExecutor(max(workers, cores()), thread_name_prefix="turnout")
        running = [self.pool.submit(run, number) for number in range(count)]
        wait(running)  # all of them: whoever failed, nobody works on unseen
        for done in running:
            done.result()

    def _tuning(self, prepared: Prepared, requests: list[Fit]) -> Tuning:
        """Return how to run this group: as fixed, as a journal or this machine remembers, or as its shapes suggest."""
        rows = sum(len(r.clients) for r in requests)
        layout, local = prepared.task.layout, requests[0].local
        block, workers, threads, stack = self.fixed
        can_stack = bool(prepared.kernels) and stack is not False
        if self.device.type != "cpu":
            return Tuning(Execution(can_stack, block or rows, 1, most_threads()))
        if any(value is not None for value in self.fixed):
            return Tuning(Execution(can_stack, block or rows, workers or 1, threads or 1))
        has_offset, own_rows = requests[0].offset is not None, len(requests[0].kept) + (requests[0].starts is not None)
        rows_in_cache = 1 + ("momentum" in local.features) + has_offset + own_rows  # what a row keeps in cache
        size, of_images = 4 * layout.size * rows_in_cache, prepared.task.of_images
        if self.deterministic:
            return Tuning(candidates(rows, size, can_stack, 1, 1, of_images)[0])
        moves = (sorted(local.features), has_offset, own_rows, local.batch_size, rows.bit_length())
        kernels = [kernel.name for kernel in prepared.kernels]
        key = tuning_key([slot.shape for slot in layout.slots], kernels, type(local), *moves)
        if key not in self.tunings:
            options = candidates(rows, size, can_stack, cores(), most_threads(), of_images)
            self.tunings[key] = self._first_tuning(key, [guess(rows, size, can_stack, cores(), of_images), *options])
        return self.tunings[key]

    def _first_tuning(self, key: str, options: list[Execution]) -> Tuning:
        """Return the tuning of work that is met for the first time in this process."""
        remember = partial(self.remembered.put, key)
        if key in self.restored:
            tuning = tuning_of(self.restored[key])
            return tuning if tuning.is_settled else tuning.searching(options, remember)
        if key in self.remembered.known:
            return Tuning(self.remembered.known[key], REMEMBERED, is_settled=True)
        return Tuning(options[0]).searching(options, remember)


def group_key(task: Task, request: EngineRequest) -> tuple[object, ...]:
    """Return the same key for questions that are answered together."""
    base = (task.kind, type(request))
    if not isinstance(request, Fit):
        return base
    local = request.local
    what = (type(local), local.features, local.batch_size, local.batches)
    returns_next_rows = None if request.offset is None else request.offset.scale is not None
    own_rows = (request.starts is None, request.own_models, request.first_step, tuple(sorted(request.kept)))
    parameters = (request.frozen, request.private, request.wants_ends)
    buffers = None if request.buffers is None else id(request.buffers)  # rows of a block start from the same
    own_buffers = (request.buffer_starts is None, request.wants_buffers)
    return (*base, *what, local.cycle, returns_next_rows, *own_rows, *parameters, buffers, *own_buffers)


def pick_device(name: str) -> torch.device:
    """Return the device of that name; "auto" takes an accelerator where there is one."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
