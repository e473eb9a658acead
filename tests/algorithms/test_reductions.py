"""What an algorithm reduces to, run side by side: the models are the same."""

from typing import Any

import pytest
import torch

import turnout as to
from tests.support.runs import models_of
from turnout.algorithms import ALGORITHMS, Sections

LOCAL = {"lr": 0.1, "batch_size": 10}
SHARED: dict[str, Any] = {
    "data": {"use": "digits", "clients": 6, "samples": 240},
    "model": {"use": "softmax"},
    "rounds": 3,
    "local": {"use": "sgd", **LOCAL, "epochs": 2},
}
FEDAVG = to.algorithms.fedavg()
EQUAL = to.algorithms.fedavg(weighting="mean")
HIDDEN = {"model": {"use": "mlp", "hidden": [6]}}
SOME = {"selection": {"use": "uniform", "cohort_size": 3}}


def changed(sections: Sections, path: str, value: Any) -> Sections:
    """Return sections with one setting changed to a value that the algorithm itself refuses."""
    section, key = path.split(".")
    return {**sections, section: {**sections[section], key: value}}


def named(name: str, **settings: Any) -> Sections:
    return ALGORITHMS[name].function(**settings)


CASES: dict[str, tuple[Sections, Sections, Sections]] = {  # by name: an algorithm, what it reduces to, the scenario
    "fedprox without a pull": (changed(named("fedprox"), "local.prox_strength", 0.0), FEDAVG, SOME),
    "fedprox with one step": (
        named("fedprox", prox_strength=5.0),
        FEDAVG,
        {**SOME, "local": {"use": "sgd", "lr": 0.1, "steps": 1}},
    ),
    "scaffold in the first round": (named("scaffold"), EQUAL, {**SOME, "rounds": 1}),
    "scaffold with one full step": (
        named("scaffold", weighting="ratio"),
        FEDAVG,
        {"local": {"use": "sgd", "lr": 0.1, "steps": 1}},
    ),
    "ifca with one model": (named("ifca", num_models=1), EQUAL, SOME),
    "fednova with equal work": (named("fednova"), FEDAVG, {"local": {"use": "sgd", **LOCAL, "steps": 4}, **SOME}),
    "fednova-prox with equal work": (
        named("fednova-prox", prox_strength=0.5),
        named("fedprox", prox_strength=0.5),
        {"local": {"use": "sgd", **LOCAL, "steps": 4}, **SOME},
    ),
    "fednova-vr with equal work": (
        named("fednova-vr"),
        named("scaffold", weighting="ratio"),
        {"local": {"use": "sgd", **LOCAL, "steps": 4}, **SOME},
    ),
    "fednova-momentum with equal work": (
        named("fednova-momentum", momentum=0.5),
        changed(named("fedavg", lr=0.1), "local.momentum", 0.5),
        {"local": {"use": "sgd", **LOCAL, "steps": 4}, **SOME},
    ),
    "fednova-hybrid without server momentum": (
        changed(named("fednova-hybrid"), "server.momentum", 0.0),
        named("fednova-momentum"),
        SOME,
    ),
    "fedavgm without momentum": (
        changed(named("fedavgm", server_lr=0.5), "server.momentum", 0.0),
        named("fedavg", server_lr=0.5),
        SOME,
    ),
    "slowmo at a constant rate": (named("slowmo"), named("fedavgm"), SOME),
    "fedyogi in the first round": (named("fedyogi"), named("fedadam"), {**SOME, "rounds": 1}),
    "fedexp with a large constant": (
        changed(named("fedexp", eps=1e9), "server.evaluates_average", False),
        FEDAVG,
        SOME,
    ),
    "scaffold-exp in the first round": (
        named("scaffold-exp"),
        named("fedexp", weighting="mean"),
        {**SOME, "rounds": 1},
    ),
    "scheme A when everyone finishes": (named("scheme-a"), EQUAL, {}),
    "scheme B when everyone answers": (named("scheme-b"), FEDAVG, {}),
    "scheme C when everyone finishes": (named("scheme-c"), FEDAVG, {}),
    "fedvarp with everyone": (named("fedvarp"), EQUAL, {}),
    "cluster-fedvarp with one cluster": (named("cluster-fedvarp", num_clusters=1), EQUAL, SOME),
    "mifa with everyone": (named("mifa"), EQUAL, {}),
    "safari without server rounds": (
        named("safari", server_lr=0.1, client_prob=1.0),
        EQUAL,
        {**SOME, "data": {"use": "digits", "clients": 6, "samples": 240, "server_samples": 20}},
    ),
    "local adagrad, one client": (
        named("local-adagrad"),
        named("local-adagrad", correction="none"),
        {"selection": {"use": "uniform", "cohort_size": 1}},
    ),
    "rpow-d with d = K": (
        named("rpow-d", cohort_size=3, pool_size=3),
        named("power-of-choice", cohort_size=3, pool_size=3),
        {},
    ),
    "cpow-d with a batch of everything": (
        named("cpow-d", cohort_size=2, pool_size=4, batch_size=1000),
        named("power-of-choice", cohort_size=2, pool_size=4),
        {},
    ),
    "divfl with everyone": (named("divfl", cohort_size=6), FEDAVG, {}),
    "median of two": (named("median"), EQUAL, {"selection": {"use": "uniform", "cohort_size": 2}}),
    "multi-krum that keeps one": (
        named("multi-krum", num_attackers=1, num_kept=1),
        named("krum", num_attackers=1),
        {},
    ),
    "heterofl at rate 1": (named("heterofl", rates=(1.0,)), EQUAL, {**SOME, **HIDDEN}),
    "fjord at rate 1": (named("fjord", rates=(1.0,)), FEDAVG, {**SOME, **HIDDEN}),
    "federated dropout at rate 1": (named("federated-dropout", rates=(1.0,)), FEDAVG, {**SOME, **HIDDEN}),
    "fedrolex whose window does not move": (
        named("fedrolex", rates=(1.0, 0.5), stride=0),
        named("heterofl", rates=(1.0, 0.5), scaler=False),
        {**SOME, **HIDDEN},
    ),
    "norm clipping that clips nothing": (named("norm-clipping", clip_norm=1e6), FEDAVG, SOME),
    "maxfl without sharpness": (named("maxfl", sharpness=0.0, eps=0.0, alone_epochs=1), EQUAL, SOME),
    "q-ffl with q = 0": (named("q-ffl", power=0.0), FEDAVG, SOME),
    "agnostic-fl with a rate of 0": (named("agnostic-fl", rate=0.0), FEDAVG, SOME),
    "term without a tilt": (named("term", tilt=0.0), FEDAVG, SOME),
    "private without noise": (
        named("dp-fedavg", cohort_size=3, clip_norm=1e6, noise_multiplier=0.0),
        {**EQUAL, **SOME},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_identity_an_algorithm_is_what_it_reduces_to(case: str) -> None:
    one, other, scenario = CASES[case]
    arms = (to.arm("one", **one), to.arm("other", **other))
    models = models_of(to.Study(**{**SHARED, **scenario}, arms=arms).run(progress=False))
    first, second = models.values()
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_contract_algorithms_that_differ_give_different_models() -> None:
    arms = (to.arm("one", **named("fedprox", prox_strength=1.0)), to.arm("other", **FEDAVG))
    first, second = models_of(to.Study(**{**SHARED, **SOME}, arms=arms).run(progress=False)).values()
    assert not torch.allclose(first, second, rtol=1e-4, atol=1e-6)
