"""Predictions and distillation on the public set, one model after another: the same for every engine."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from turnout.array_types import Bits, Ids
from turnout.distillation import Distil, Distilled, Predict, Predicted
from turnout.engine.dropout import KeyedDropout
from turnout.engine.module_probe import draws_globally, draws_masks
from turnout.engine.task import Task
from turnout.errors import ConfigError
from turnout.local.batches import draw_batches
from turnout.local.sgd import SGD
from turnout.protocols import SlotUpdate

if TYPE_CHECKING:
    from turnout.engine.evaluation import Evaluator

SAMPLES_AT_ONCE = 4096


def public_inputs(task: Task) -> Tensor:
    """Return the inputs of the public set."""
    if task.federation.public is None:
        raise ConfigError(
            f"This rule needs a public set; {task.federation.name} has none. Set data.public_samples to 100 or more, "
            "or pass public=x when building the federation.",
            setting="data.public_samples",
        )
    return task.federation.public


def predict(evaluator: "Evaluator", task: Task, request: Predict) -> Predicted:
    """Return the outputs of each model on the samples."""
    public, module = public_inputs(task), evaluator.module.eval()
    rows = torch.from_numpy(np.asarray(request.samples, dtype=np.int64)).to(public.device)
    outputs = []
    for model in request.models:
        evaluator.watch.check()
        state = task.layout.views(model)
        with torch.no_grad():
            parts = [
                torch.func.functional_call(module, state, (public[some],))
                for some in torch.split(rows, SAMPLES_AT_ONCE)
            ]
        outputs.append(torch.cat(parts))
    return Predicted(outputs=torch.stack(outputs))


def distil(evaluator: "Evaluator", task: Task, request: Distil) -> Distilled:
    """Train each model towards its targets."""
    if draws_globally(task):
        raise ConfigError(
            f"Distillation needs dropout that is keyed; {type(task.module).__name__} draws from PyTorch's global "
            "generator, as dropout inside an LSTM does. Use a model without it.",
            setting="model",
        )
    count, rows, gradients = len(request.samples), len(request.models), 0
    keys = request.streams.keys(request.purpose, request.round, request.clients)
    sizes, steps = np.full(rows, count), np.full(rows, request.steps)
    drawn = draw_batches(keys, sizes, steps, request.batch_size, "shuffled")
    masks = request.streams.keys(f"{request.purpose} dropout", request.round, request.clients)
    trained = request.models.clone()
    for row in range(rows):
        batches = [drawn.positions[row, step, : drawn.counts[row, step]] for step in range(request.steps)]
        targets = request.targets[row if len(request.targets) > 1 else 0]
        _train(evaluator, task, request, (trained[row], targets), (batches, masks[row : row + 1]))
        gradients += int(drawn.counts[row].sum())
    evaluator.module.eval()
    return Distilled(models=trained, gradients=gradients)


def soft_loss(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """Return the mean loss of a batch against targets that are numbers for each class."""
    if kind == "squares":
        return (outputs.softmax(1) - targets).square().sum(1).mean()
    return -(targets * F.log_softmax(outputs, 1)).sum(1).mean()


def _train(
    evaluator: "Evaluator",
    task: Task,
    request: Distil,
    given: tuple[Tensor, Tensor],
    drawn: tuple[list[Ids], Bits],
) -> None:
    """Move one model, in place, by the steps of the solver."""
    (flat, targets), (batches, mask_key), public = given, drawn, public_inputs(task)
    samples = torch.from_numpy(np.asarray(request.samples, dtype=np.int64))
    solver = SGD(lr=request.settings["lr"], momentum=request.settings.get("momentum", 0.0), steps=1)
    settings: dict[str, Tensor | float] = {"lr": solver.lr, **solver.numbers()}
    masks, is_random = KeyedDropout(), draws_masks(task)
    values = list(task.layout.views(flat).items())
    module, rows = evaluator.module.train(), [value[None] for _, value in values]
    anchors, state = [row.clone() for row in rows], solver.begin(rows)
    for step, positions in enumerate(batches):
        evaluator.watch.check()
        some = torch.from_numpy(positions.copy())
        leaves = {name: value.detach().requires_grad_() for name, value in values}
        masks.begin(mask_key, step)
        x = public[samples[some].to(public.device)]
        if is_random:
            with masks:
                out = torch.func.functional_call(module, leaves, (x,))
        else:
            out = torch.func.functional_call(module, leaves, (x,))
        loss = request.strength * soft_loss(out, targets[some.to(targets.device)], request.loss)
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        for at, grad in enumerate(found):
            if grad is not None:
                slot = SlotUpdate(rows[at], grad[None].clone(), anchors[at], state[at], settings, step)
                solver.update(slot)
