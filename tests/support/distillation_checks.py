"""What learning from predictions must satisfy, for the rules and for mistakes in them: Fed-ET and COMET."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.families import family_run, family_task, members_of
from tests.support.personal_runs import kept
from turnout.aggregation import ensemble_transfer
from turnout.engine import distillation
from turnout.engine.task import Task
from turnout.local import SGD
from turnout.models.layout import Layout
from turnout.personal import Codistil
from turnout.streams import Streams
from turnout.width import Architectures

NUMBERS = (0, 1, 0, 1, 1, 0)
LISTED = Architectures(assign="listed", numbers=NUMBERS)
STILL = SGD(lr=1e-300, steps=1, batch_size=4)
STRENGTH, RATE = 2.0, 0.5


def check_agreement_has_no_diversity_term() -> None:
    """Where no client disagrees, the target is the consensus alone."""
    agreed = torch.tensor([[[3.0, 1.0, 0.0]], [[2.0, 0.0, 1.0]]])
    weights = ensemble_transfer.confidence_weights(agreed, torch.ones(2), "logits")
    assert torch.equal(ensemble_transfer.ensemble_targets(agreed, weights, 0.7), torch.tensor([[1.0, 0.0, 0.0]]))


def check_sure_clients_count_most() -> None:
    """Two clients with variances 1 and 9 have weights 0.1 and 0.9, and the second one's label wins."""
    outputs = torch.tensor([[[2.0, 0.0]], [[0.0, 6.0]]])
    weights = ensemble_transfer.confidence_weights(outputs, torch.ones(2), "logits")
    assert torch.allclose(weights, torch.tensor([[0.1], [0.9]]))
    opinion = torch.tensor([2.0, 0.0]).softmax(0)
    target = ensemble_transfer.ensemble_targets(outputs, weights, 0.5)
    assert torch.allclose(target, torch.tensor([[0.0, 1.0]]) + 0.5 * opinion)


def check_the_loss_is_a_divergence_of_each_sample() -> None:
    """The loss is KL(target ‖ prediction) up to the target's entropy: a sum over classes, a mean over samples."""
    rng = np.random.default_rng(5)
    z, target = torch.tensor(rng.normal(size=(4, 3))), torch.tensor(rng.dirichlet(np.ones(3), size=4))
    entropy = -(target * target.log()).sum(1).mean()
    expected = F.kl_div(z.log_softmax(1), target, reduction="batchmean")
    assert torch.allclose(distillation.soft_loss(z, target, "cross-entropy") - entropy, expected)


def predictions_of(task: Task, rows: Tensor) -> Tensor:
    """Return the softmax of each client's own model, of its architecture, on the public set."""
    members, outputs = members_of(task), []
    for row, number in zip(rows, NUMBERS, strict=True):
        module, columns = members.cut((number,)), members.parts.members[number].columns
        views = Layout.of(module).views(row[columns])
        outputs.append(torch.func.functional_call(module, views, (task.federation.public,)))
    return torch.stack(outputs).softmax(2)


def check_one_cluster_follows_the_mean_of_all_architectures() -> None:
    """One full step towards the mean prediction of all clients is that of plain autograd, client by client."""
    task = family_task()
    members = members_of(task)
    before, _ = family_run(task, personal=Codistil(strength=0.0), width=LISTED, rounds=1)
    rows = kept(before)
    target = predictions_of(task, rows).mean(0)
    rule = Codistil(clusters=1, distil_steps=1, batch_size=99, lr=RATE, strength=STRENGTH)
    after, _ = family_run(task, personal=rule, width=LISTED, rounds=2, state=before, local=STILL)
    for client, number in enumerate(NUMBERS):
        module, columns = members.cut((number,)), members.parts.members[number].columns
        flat = rows[client, columns].clone().requires_grad_()
        z = torch.func.functional_call(module, Layout.of(module).views(flat), (task.federation.public,))
        (STRENGTH * -(target * z.log_softmax(1)).sum(1).mean()).backward()
        assert flat.grad is not None
        assert flat.grad.abs().max() > 1e-3
        expected = rows[client, columns] - RATE * flat.grad
        assert torch.allclose(kept(after)[client, columns], expected, rtol=0, atol=1e-10)


def check_clusters_that_are_far_apart_do_not_mix() -> None:
    """A client follows the clients that predict as it does, and no others."""
    predictions = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]], [[0.8, 0.2]], [[0.2, 0.8]]], dtype=torch.float64)
    here: Any = SimpleNamespace(streams=Streams(0), round=1)
    for rule in (Codistil(clusters=2), Codistil(clusters=2, cluster="samples")):
        found = rule._targets(here, np.arange(1), predictions)
        expected = torch.tensor([[[0.85, 0.15]], [[0.15, 0.85]]] * 2, dtype=torch.float64)
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def check_bytes_are_predictions_alone() -> None:
    """A client sends |P| · classes numbers; it receives as many, or with clusters of samples Q times as many."""
    few: dict[str, Any] = {"samples": 5, "clusters": 2, "distil_steps": 1}
    for rule, times in ((Codistil(**few), 1), (Codistil(**few, cluster="samples"), 2)):
        _, records = family_run(family_task(), personal=rule, width=LISTED, rounds=1)
        assert (records[1].costs.bytes_up, records[1].costs.bytes_down) == (6 * 5 * 3 * 8, times * 6 * 5 * 3 * 8)


def check_predictions_are_each_clients_own() -> None:
    """With a cluster for each client, everyone follows its own predictions, and a full step goes nowhere."""
    task = family_task()
    before, _ = family_run(task, personal=Codistil(strength=0.0), width=LISTED, rounds=1)
    rows = kept(before)
    rule = Codistil(clusters=6, distil_steps=1, batch_size=99, lr=RATE)
    after, _ = family_run(task, personal=rule, width=LISTED, rounds=2, state=before, local=STILL)
    assert torch.allclose(kept(after), rows, rtol=0, atol=1e-12)
