"""Rows of one stacked call have settings of their own, and end as they would alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.local_claims import NEVER, together
from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.aggregation import FedAvg, Joint
from turnout.coordinator import Plan
from turnout.engine import Vectorised
from turnout.engine.vectorised import kernels as vectorised
from turnout.local import SGD, Adagrad, Adam, Yogi
from turnout.local.schedule import Constant, Inverse
from turnout.selection import Uniform


def settings_by_client(solver: type[Any]) -> type[Any]:
    """Return a solver whose numbers differ from client to client."""

    class Own(solver):  # type: ignore[misc]
        def settings(self, clients: Any, view: Any) -> Any:
            spread = 1 + (clients % 3) / 4
            return {name: values / spread for name, values in solver.settings(self, clients, view).items()}

    return Own


SGDS = SGD(lr=0.1, batch_size=5, steps=(1, 6), momentum=0.9, prox_strength=0.5, weight_decay=0.02, lr_decay=0.9)
ADAMS = Adam(lr=0.05, batch_size=5, steps=(1, 6), initial_accumulator=0.1, clip_norm=1.0, correction="joint")
FAMILIES: dict[str, Any] = {
    "plain": [SGD(lr=lr, batch_size=5, steps=(1, 6)) for lr in (0.1, 0.02)],
    "sgd": [
        SGDS,
        replace(SGDS, lr=0.03, schedule=Inverse()),
        replace(SGDS, momentum=0.5, prox_strength=2.0, weight_decay=0.1, lr_decay=0.7),
    ],
    "clipped": [SGD(lr=0.1, batch_size=5, epochs=1, clip_norm=c) for c in (0.1, 1.0)],
    "controls": [SGD(lr=lr, batch_size=5, steps=3, control="average") for lr in (0.1, 0.02)],
    "adagrad": [Adagrad(lr=0.1, batch_size=5, steps=(1, 6), adaptivity=a, correction="local") for a in (0.1, 1e-3)],
    "adam": [ADAMS, replace(ADAMS, initial_accumulator=0.5, beta1=0.5, beta2=0.7, adaptivity=0.1, clip_norm=0.1)],
    "unbiased adam": [Adam(lr=0.1, batch_size=5, steps=4, beta1=b, bias_correction=True) for b in (0.5, 0.9)],
    "yogi": [Yogi(lr=0.05, batch_size=5, steps=(1, 6), beta2=b, initial_accumulator=b) for b in (0.5, 0.9)],
    "clients": [
        settings_by_client(SGD)(lr=0.1, batch_size=5, steps=(1, 6), momentum=0.9, prox_strength=0.5),
        settings_by_client(Adam)(lr=0.1, batch_size=5, steps=(1, 6)),
    ],
}


@pytest.mark.parametrize("name", FAMILIES)
def test_engine_rows_with_settings_of_their_own_end_as_they_would_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(vectorised, "train_block", lambda *a: calls.append(len(a[2])) or train_block(*a))  # type: ignore[func-returns-value]
    task = blob_task(6)
    jobs = []
    for local in FAMILIES[name]:
        aggregation = Joint() if getattr(local, "correction", "none") == "joint" else FedAvg()
        plan = Plan(local=local, rounds=2, selection=Uniform(cohort_size=4), aggregation=aggregation, evaluate=NEVER)
        jobs += [(task, plan, seed) for seed in (0, 1)]
    models = together(jobs, Vectorised("cpu", block=1000))
    classes = len({type(local) for local in FAMILIES[name]})
    assert calls == [4 * len(jobs) // classes] * (2 * classes)  # all of a class's rows in one call a round
    for (a_task, plan, seed), model in zip(jobs, models, strict=True):
        assert torch.allclose(run(a_task, plan, seed=seed)[0].model, model, rtol=0, atol=1e-11)
    assert len({tuple(np.round(model.numpy(), 6)) for model in models}) == len(models)


train_block = vectorised.train_block  # type: ignore[attr-defined]


def test_contract_rows_that_differ_in_what_is_switched_on_are_not_stacked() -> None:
    features = [
        SGD(lr=1, steps=1).features,
        SGD(lr=1, steps=1, momentum=0.5).features,
        SGD(lr=1, steps=1, clip_norm=1).features,
        Adam(lr=1, steps=1).features,
        Adam(lr=1, steps=1, bias_correction=True).features,
        Adam(lr=1, steps=1, initial_accumulator=1).features,
        Adam(lr=1, steps=1, correction="local").features,
        Adam(lr=1, steps=1, correction="joint").features,
    ]
    assert len(set(features)) == len(features)
    for solver in (Adagrad, Yogi):
        corrections = [solver(lr=1, steps=1, correction=c).features for c in ("none", "local", "joint")]
        assert len(set(corrections)) == 3
    assert SGD(lr=1, steps=1, schedule=Inverse()).features == SGD(lr=2, epochs=2, schedule=Constant()).features
