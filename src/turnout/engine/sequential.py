"""The reference engine: one client after another, any module. The vectorised engine is tested against it."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from turnout.engine.evaluation import Evaluator
from turnout.engine.fingerprint import machine_fingerprint
from turnout.engine.module_probe import draws_globally
from turnout.engine.reduction import Gather
from turnout.engine.single_client import Worker
from turnout.engine.task import Question, Task, samples_of
from turnout.engine.watch import Watch
from turnout.requests import Answer, EngineRequest, Evaluate, Fit, Trained


class Sequential:
    """One client after another, one question after another."""

    name = "sequential"

    def __init__(self) -> None:
        self.tools: dict[str, tuple[Worker, Evaluator]] = {}  # by the kind of a task
        self.device = torch.device("cpu")
        self.watch = Watch()

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order."""
        return [self._answer(task, request) for task, request in questions]

    def fingerprint(self) -> dict[str, Any]:
        """Return this machine and its software: every sum is taken in one order."""
        return machine_fingerprint(self.device)

    def tuning(self) -> dict[str, dict[str, Any]]:
        """Return nothing: there is one way to run."""
        return {}

    def use_tuning(self, tuning: Mapping[str, Mapping[str, Any]]) -> None:
        """Leave it: there is one way to run."""

    def close(self) -> None:
        """Leave it: nothing is held."""

    def _answer(self, task: Task, request: EngineRequest) -> Answer:
        self.watch.begin(request)
        if task.kind not in self.tools:
            self.tools[task.kind] = (
                Worker(task, draws=draws_globally(task), watch=self.watch),
                Evaluator(task, self.watch),
            )
        worker, evaluator = self.tools[task.kind]
        if isinstance(request, Evaluate):
            return evaluator.evaluate([task], [request])[0]
        single = evaluator.single(request)
        return self._train(worker, task, cast(Fit, request)) if single is None else single(task, request)

    def _train(self, worker: Worker, task: Task, request: Fit) -> Trained:
        slab = samples_of(task, request)
        self.watch.expect(int(request.steps.sum()))
        gather = Gather(task.layout, [request])
        part = gather.part()
        for place in range(len(request.clients)):
            part.add_row(0, place, worker.train(request, place, slab))
        gather.merge(part)
        return gather.answers()[0]
