"""Mistakes in learning from predictions, Fed-ET's and COMET's, made in our own code: the checks must reject each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support import distillation_checks as checks
from turnout.aggregation import ensemble_transfer
from turnout.costs import Costs
from turnout.distillation import Distil, one_hot
from turnout.engine import distillation
from turnout.learned import Learned
from turnout.personal import codistil
from turnout.submodels import Parts
from turnout.world.simulation import by_member


def _towards_uniform(outputs: Tensor, weights: Tensor, diversity: float) -> Tensor:
    """Code for the paper: s_div = 0 where nobody disagrees, which pulls to the uniform distribution."""
    labels = (weights[:, :, None] * outputs).sum(0).argmax(1)
    apart = weights * (outputs.argmax(2) != labels)
    total = apart.sum(0)
    shares = apart / torch.where(total > 0, total, torch.ones_like(total))
    return one_hot(labels, outputs) + diversity * (shares[:, :, None] * outputs).sum(0).softmax(1)


def _nothing_by_nothing(outputs: Tensor, weights: Tensor, diversity: float) -> Tensor:
    """The weights of those who disagree are divided by their sum, 0 where there are none."""
    labels = (weights[:, :, None] * outputs).sum(0).argmax(1)
    apart = weights * (outputs.argmax(2) != labels)
    return one_hot(labels, outputs) + diversity * ((apart / apart.sum(0))[:, :, None] * outputs).sum(0).softmax(1)


def _alike(outputs: Tensor, votes: Tensor, confidence: str) -> Tensor:
    """All clients count alike, however sure they are."""
    return (votes / votes.sum())[:, None].expand(outputs.shape[:2])


def _over_classes_too(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """The default of kl_div: a mean over samples and classes."""
    return -(targets * F.log_softmax(outputs, 1)).mean()


def _reversed(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """KL(prediction ‖ target) in place of KL(target ‖ prediction)."""
    own = outputs.softmax(1)
    return (own * (own.log() - targets.log())).sum(1).mean()


def _mean_of_all(predictions: Tensor, clusters: Any) -> Tensor:
    """Clusters are found and not used."""
    return predictions.mean(0, keepdim=True).expand_as(predictions)


def _nearest_of_others(points: Any, count: int, rng: np.random.Generator) -> Any:
    """Every client takes the first centroid."""
    return np.repeat(codistil.centroids_of(points, count, rng)[:1], len(points), axis=0)


def _in_groups(groups: Any) -> Tensor:
    """Predictions stay one architecture after another, and are taken for those of other clients."""
    return torch.arange(sum(len(places) for places, _ in groups))


def _first_architecture(request: Distil, groups: Any) -> Any:
    """Only the clients of one architecture are taught."""
    answer = yield from _distil(request, groups[:1])
    return answer


def _models_are_sent(parts: Parts, clients: Any) -> Any:
    """The bytes of models that never leave their clients."""
    return np.array([part.columns.numel() for part in parts.submodels])[parts.of(clients)]


def _one_centroid(learned: Learned) -> Any:
    """As many bytes down as up, whatever is sent."""
    return Costs(bytes_down=learned.bytes_up, bytes_up=learned.bytes_up)


_distil = by_member._distil
follows = checks.check_one_cluster_follows_the_mean_of_all_architectures
MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "uniform": (ensemble_transfer, "ensemble_targets", _towards_uniform, checks.check_agreement_has_no_diversity_term),
    "0 / 0": (ensemble_transfer, "ensemble_targets", _nothing_by_nothing, checks.check_agreement_has_no_diversity_term),
    "not sure": (ensemble_transfer, "confidence_weights", _alike, checks.check_sure_clients_count_most),
    "classes": (distillation, "soft_loss", _over_classes_too, checks.check_the_loss_is_a_divergence_of_each_sample),
    "reversed": (distillation, "soft_loss", _reversed, checks.check_the_loss_is_a_divergence_of_each_sample),
    "classes of COMET": (distillation, "soft_loss", _over_classes_too, follows),
    "reversed for COMET": (distillation, "soft_loss", _reversed, follows),
    "one architecture": (by_member, "_distil", _first_architecture, follows),
    "no clusters": (codistil, "cluster_means", _mean_of_all, checks.check_clusters_that_are_far_apart_do_not_mix),
    "one centroid": (
        codistil,
        "nearest_centroids",
        _nearest_of_others,
        checks.check_clusters_that_are_far_apart_do_not_mix,
    ),
    "predictions of other clients": (by_member, "_order", _in_groups, checks.check_predictions_are_each_clients_own),
    "models are sent": (Parts, "numbers", _models_are_sent, checks.check_bytes_are_predictions_alone),
    "bytes of one centroid": (Learned, "costs", property(_one_centroid), checks.check_bytes_are_predictions_alone),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_mistakes_in_learning_from_predictions_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, mistake, check = MUTANTS[name]
    check()
    monkeypatch.setattr(owner, method, mistake)
    with pytest.raises(AssertionError):
        check()
