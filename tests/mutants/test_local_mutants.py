"""Published mistakes of local solvers, made on purpose: the solver's own claims must not hold of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.local_claims import (
    claim_clipping_bounds_the_data_alone,
    claim_momentum_starts_afresh_every_round,
    claim_the_pull_meets_the_proximal_point,
    claim_the_pull_stays_out_of_the_momentum,
    claim_work_is_the_displacement_under_a_constant_gradient,
)
from turnout.array_types import Floats, Ids
from turnout.engine.vectorised.optimizers import clip_rows
from turnout.local import SGD
from turnout.local.sgd import sgd_step


class DoubledPull(SGD):
    """The loss has (μ)‖x_i − x‖² without its half, so the gradient has 2μ."""

    def update(self, slot: Any) -> None:
        sgd_step(replace(slot, settings={**slot.settings, "prox_strength": 2 * slot.settings["prox_strength"]}))


class UnsquaredPull(SGD):
    """The loss has (μ/2)‖x_i − x‖ without its square, so the pull is the same however far the client has gone."""

    def update(self, slot: Any) -> None:
        away = slot.param - slot.anchor
        pull = slot.settings["prox_strength"] / 2 * away / away.norm(dim=1, keepdim=True).clamp(min=1e-12)
        slot.grad.add_(pull)
        sgd_step(replace(slot, settings={k: v for k, v in slot.settings.items() if k != "prox_strength"}))


class MissingPull(SGD):
    """The pull is a setting that nothing reads."""

    def update(self, slot: Any) -> None:
        sgd_step(replace(slot, settings={k: v for k, v in slot.settings.items() if k != "prox_strength"}))


class LeakingPull(SGD):
    """The direction is the buffer itself, and the pull is added to it in place."""

    def update(self, slot: Any) -> None:
        sgd_step(slot)
        slot.state["velocity"].add_((slot.param - slot.anchor) * slot.settings["prox_strength"])


class PullInTheGradient(SGD):
    """The pull is added to the gradient, before momentum."""

    def update(self, slot: Any) -> None:
        slot.grad.add_((slot.param - slot.anchor) * slot.settings["prox_strength"])
        sgd_step(replace(slot, settings={k: v for k, v in slot.settings.items() if k != "prox_strength"}))


class WorkCountedTwice(SGD):
    """With momentum and a pull, the published recursion adds both: vec += counter, then vec = vec(1 − ημ) + 1."""

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        counter = work = 0.0
        for _ in range(int(steps[0])):
            counter = counter * settings["momentum"][0] + 1
            work += counter
            work = work * (1 - settings["lr"][0] * settings["prox_strength"][0]) + 1
        return np.array([work])


class WorkIsSteps(SGD):
    """Whatever the solver, its work is its number of steps."""

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        return steps.astype(float)


KEPT: dict[str, list[dict[str, object]]] = {}


class KeptMomentum(SGD):
    """The momentum buffer lives as long as the client's optimiser, and not as long as the round."""

    def begin(self, params: Any) -> Any:
        return KEPT.setdefault("state", SGD.begin(self, params))


class ClippedWithThePull(SGD):
    """The gradient is clipped after the pull was added to it."""

    @property
    def features(self) -> Any:
        return frozenset({"prox_strength"})

    def update(self, slot: Any) -> None:
        slot.grad.add_((slot.param - slot.anchor) * slot.settings["prox_strength"])
        clip_rows([slot.grad], slot.settings["clip_norm"])
        sgd_step(replace(slot, settings={"lr": slot.settings["lr"]}))


BOTH: dict[str, Any] = {"momentum": 0.9, "prox_strength": 0.35}


@pytest.mark.parametrize(
    ("claim", "mutant", "extra"),
    [
        (claim_the_pull_meets_the_proximal_point, DoubledPull, {}),
        (claim_the_pull_meets_the_proximal_point, UnsquaredPull, {}),
        (claim_the_pull_meets_the_proximal_point, MissingPull, {}),
        (claim_the_pull_stays_out_of_the_momentum, DoubledPull, {}),
        (claim_the_pull_stays_out_of_the_momentum, MissingPull, {}),
        (claim_the_pull_stays_out_of_the_momentum, LeakingPull, {}),
        (claim_the_pull_stays_out_of_the_momentum, PullInTheGradient, {}),
        (claim_work_is_the_displacement_under_a_constant_gradient, WorkCountedTwice, BOTH),
        (claim_work_is_the_displacement_under_a_constant_gradient, WorkIsSteps, {"momentum": 0.9}),
        (claim_work_is_the_displacement_under_a_constant_gradient, LeakingPull, BOTH),
        (claim_momentum_starts_afresh_every_round, KeptMomentum, {}),
        (claim_clipping_bounds_the_data_alone, ClippedWithThePull, {}),
    ],
)
def test_contract_the_claim_does_not_hold_of_the_mutant(
    claim: Callable[..., Any], mutant: type[Any], extra: dict[Any, Any]
) -> None:
    KEPT.clear()
    claim(SGD, **extra)
    with pytest.raises(AssertionError):
        claim(mutant, **extra)


def test_golden_the_published_recursion_is_the_one_that_counts_twice() -> None:
    settings = {"lr": np.array([0.1]), "momentum": np.array([0.9]), "prox_strength": np.array([0.35])}
    mutant, ours = WorkCountedTwice(lr=0.1, steps=5, **BOTH), SGD(lr=0.1, steps=5, **BOTH)
    assert mutant.local_work(np.array([5]), settings)[0] == pytest.approx(16.74, abs=0.005)
    assert ours.local_work(np.array([5]), settings)[0] == pytest.approx(12.51, abs=0.005)
