"""Published mistakes of personal models, made in our own code: the suite's checks must reject each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import personal_checks as checks
from tests.support.statistics_checks import (
    NORMS,
    check_statistics_never_mix,
    check_the_average_has_only_what_is_shared,
)
from turnout.data.federation import Slab
from turnout.engine import sequential
from turnout.engine.task import Task, samples_of
from turnout.learned import Learned
from turnout.local.moreau import Moreau as MoreauSolver
from turnout.personal import APFL, Ditto, FineTune, Layers, Moreau, apfl
from turnout.personal.at_clients import AtClients, model_rows
from turnout.protocols import SlotUpdate
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import Overlay, TableExcerpt

rejected = pytest.raises(AssertionError)


class KeepsTheLocalModel(Moreau):
    """pFedMe's own code: θ_i is an alias of parameters that are overwritten with w_i before they are kept."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        sent: Trained = yield fit
        rows: Trained = yield replace(fit, coefficients=None)
        assert rows.delta is not None
        return Learned(sent=sent, rows={"model": fit.model - rows.delta})


class KeepsTheSharedPath(Ditto):
    """The personal model is an alias of the one that the shared steps move."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        sent: Trained = yield replace(fit, wants_ends=here.names)
        return Learned(sent=sent, rows=model_rows(sent))


def broadcast(self: Any, here: AtClients) -> dict[str, Tensor]:
    """PFLlib's pFedMe: clients are evaluated after the next model was sent to them."""
    rows = here.model.repeat(len(here.clients), 1)
    return {"personal": rows, "mixture": rows}


class EvaluatesTheBroadcastDitto(Ditto):
    """Ditto, evaluated after the next broadcast."""

    models: Any = broadcast


class EvaluatesTheBroadcastMoreau(Moreau):
    """pFedMe, evaluated after the next broadcast."""

    models: Any = broadcast


class EvaluatesTheBroadcastAPFL(APFL):
    """APFL, evaluated after the next broadcast."""

    models: Any = broadcast


class EvaluatesTheBroadcastFineTune(FineTune):
    """Fine-tuning, evaluated without it."""

    models: Any = broadcast


class EvaluatesTheFirstHead(Layers):
    """FedPer, evaluated with the head of the shared model, which is x⁰'s."""

    models: Any = broadcast


class PullsTowardsTheLocalModel(Ditto):
    """The pull is towards the local model x_i, which moves, in place of the round's x."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        sent: Trained = yield fit
        own = here.rows().take(fit.clients)
        for step in range(int(fit.steps.max())):
            local: Trained = yield here.training((fit.local, fit.settings), here.steps(step + 1), None)
            starts = TableExcerpt(fit.clients, own)
            moved: Trained = yield here.training(here.solver(self.lr), here.steps(1), starts)
            assert local.ends is not None
            assert moved.ends is not None
            own = moved.ends - checks.LR * self.strength * (own - local.ends)
        return Learned(sent=sent, rows={"model": own})


class ZeroPull(MoreauSolver):
    """fluke's pFedMe: the reference is the model's own parameters, so the pull is zero."""

    def update(self, slot: SlotUpdate) -> None:
        super().update(replace(slot, settings={**slot.settings, "strength": 0.0}))
        if slot.step % self.inner_steps == self.inner_steps - 1:  # w ← θ
            slot.state["moved"].copy_(slot.state["start"] - slot.param)


class NoGradientPath(apfl.Mixture):
    """fluke's APFL: models are merged without a path for the gradient, so the own model is never trained."""

    def update(self, slot: SlotUpdate) -> None:
        before = slot.state["own"].clone()
        super().update(slot)
        slot.state["own"].copy_(before)


class GradientAtTheOwnModel(apfl.Mixture):
    """PFLlib's APFL: the gradient is taken at v_i, not at the mixture."""

    def update(self, slot: SlotUpdate) -> None:
        super().update(slot)
        if slot.step % 2 == 0:
            slot.param.copy_(slot.state["own"])


class MissingFactor(apfl.Mixture):
    """The derivative of the mixture with respect to v_i, α, is left out."""

    def update(self, slot: SlotUpdate) -> None:
        if slot.step % 2 == 1:
            slot = replace(slot, grad=slot.grad / slot.settings["mixing"])
        super().update(slot)


class OverwritesTheOwnModel(apfl.Mixture):
    """PFLlib's APFL: after a round, v_i is overwritten with the mixture."""

    def update(self, slot: SlotUpdate) -> None:
        super().update(slot)
        if slot.step == 2 * checks.STEPS - 1:
            share, own, shared = slot.settings["mixing"], slot.state["own"], slot.state["shared"]
            own.copy_(own * share + shared * (1.0 - share))


APFL_MUTANTS = [NoGradientPath, GradientAtTheOwnModel, MissingFactor, OverwritesTheOwnModel]


@pytest.mark.parametrize("mutant", APFL_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_contract_a_wrong_step_of_apfl_is_rejected(mutant: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    checks.check_apfl()
    monkeypatch.setattr(apfl, "Mixture", mutant)
    with rejected:
        checks.check_apfl()


WRONG: dict[str, tuple[Callable[..., None], Any]] = {
    "pFedMe keeps an alias": (checks.check_pfedme, KeepsTheLocalModel()),
    "Ditto keeps an alias": (checks.check_ditto, KeepsTheSharedPath(strength=checks.STRENGTH)),
    "Ditto after the broadcast": (checks.check_ditto, EvaluatesTheBroadcastDitto(strength=checks.STRENGTH)),
    "pFedMe after the broadcast": (checks.check_pfedme, EvaluatesTheBroadcastMoreau()),
    "APFL after the broadcast": (checks.check_apfl, EvaluatesTheBroadcastAPFL(mixing=checks.MIXING)),
    "fine-tuning after the broadcast": (checks.check_fine_tuning, EvaluatesTheBroadcastFineTune(steps=4, lr=0.3)),
    "Per-FedAvg after the broadcast": (checks.check_per_fedavg, EvaluatesTheBroadcastFineTune(steps=1)),
    "FedPer with the first head": (checks.check_layers, EvaluatesTheFirstHead(keep=("own",))),
    "Ditto pulls towards the local model": (checks.check_ditto, PullsTowardsTheLocalModel(strength=checks.STRENGTH)),
    "FedRep with its phases swapped": (
        checks.check_fedrep_phases,
        Layers(keep=("2",), order="shared-first", kept_steps=3),
    ),
    "FedRep trained as FedPer": (checks.check_fedrep_phases, Layers(keep=("2",))),
}


@pytest.mark.parametrize("name", WRONG)
def test_contract_a_wrong_personal_rule_is_rejected(name: str) -> None:
    check, mutant = WRONG[name]
    with rejected:
        check(mutant)


def test_contract_pfedme_without_a_pull_is_rejected() -> None:
    inner = checks.INNER
    how: dict[str, Any] = {"strength": inner.strength, "inner_steps": inner.inner_steps, "inner_lr": inner.inner_lr}
    with rejected:
        checks.check_pfedme(local=ZeroPull(lr=inner.lr, steps=1, **how))


def test_contract_adapting_on_test_samples_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def held_out(task: Task, request: Fit) -> Slab:
        """pFedMe's Per-FedAvg: the model is adapted on the samples that it is then measured on."""
        holdout = task.federation.holdout
        assert holdout is not None
        return holdout.fetch(request.clients) if request.purpose == "fine-tune" else samples_of(task, request)

    monkeypatch.setattr(sequential, "samples_of", held_out)
    with rejected:
        checks.check_fine_tuning_uses_training_samples()


class StatisticsNeverLeave(Layers):
    """PFLlib: parameters are averaged and running statistics are not."""

    def _learned(self, here: AtClients, sent: Trained, last: Trained, rows: dict[str, Tensor]) -> Learned:
        learned = super()._learned(here, sent, last, rows)
        return replace(learned, sent=replace(learned.sent, buffers=here.buffers))


class StatisticsOfTheFirst(Layers):
    """PFLlib: the saved model carries the running statistics of whoever was uploaded first."""

    def _learned(self, here: AtClients, sent: Trained, last: Trained, rows: dict[str, Tensor]) -> Learned:
        learned = super()._learned(here, sent, last, rows)
        assert last.buffer_ends is not None
        return replace(learned, sent=replace(learned.sent, buffers=last.buffer_ends[0]))


class StatisticsAreShared(Layers):
    """The kept layers' parameters stay, and their running statistics are averaged as all others."""

    def kept_buffers(self, layout: Any) -> Tensor:
        return torch.zeros(0, dtype=torch.int64)


class StartsFromTheFirst(Layers):
    """Everyone starts from the running statistics that the first client left."""

    def _statistics(self, here: AtClients) -> dict[str, Any]:
        statistics = super()._statistics(here)
        starts = statistics["buffer_starts"]
        assert isinstance(starts, Overlay)
        first = starts.take(here.clients[:1]).repeat(len(here.clients), 1)
        return {**statistics, "buffer_starts": TableExcerpt(here.clients, first)}


@pytest.mark.parametrize("mutant", [StatisticsNeverLeave, StatisticsOfTheFirst])
def test_contract_statistics_that_are_not_averaged_are_rejected(mutant: type[Layers]) -> None:
    with rejected:
        check_the_average_has_only_what_is_shared(mutant(keep=("1",)))


@pytest.mark.parametrize("mutant", [StatisticsAreShared, StartsFromTheFirst])
def test_contract_statistics_that_mix_are_rejected(mutant: type[Layers]) -> None:
    check_statistics_never_mix(NORMS)
    with pytest.raises((AssertionError, KeyError)):
        check_statistics_never_mix(mutant(keep_norms=True))
