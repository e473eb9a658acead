"""Layers that stay at the client: who sends what, what is trained when, and what a client is evaluated with."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from tests.support.personal_runs import kept, network, personal_run
from turnout import losses
from turnout.data.federation import from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.local.batches import samples_used
from turnout.personal import Layers
from turnout.selection import Uniform

HEAD = ("2.weight", "2.bias")
LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)


def head(task: Task) -> torch.Tensor:
    return task.layout.columns(HEAD)


@pytest.mark.parametrize("order", ["together", "kept-first", "shared-first", "kept-frozen"])
def test_property_kept_layers_of_the_shared_model_stay_as_they_were(order: Any) -> None:
    task = network()
    start = task.layout.flatten(task.module)
    final, _ = personal_run(task, Layers(keep=("2",), order=order), local=LOCAL)

    assert torch.equal(final.model[head(task)], start[head(task)])
    assert not torch.equal(final.model, start)
    if order == "kept-frozen":
        assert "store personal layers" not in final.world or torch.equal(
            kept(final, "layers"), start[head(task)].repeat(6, 1)
        )


def test_identity_one_client_together_is_plain_sgd() -> None:
    task, local = network(1), SGD(lr=0.1, epochs=2, batch_size=4)
    plain, _ = personal_run(task, None, local=local)
    final, _ = personal_run(task, Layers(keep=("2",)), local=local)
    joined = final.model.clone()
    joined[head(task)] = kept(final, "layers")[0]

    assert torch.allclose(joined, plain.model, rtol=0, atol=1e-14)


def test_golden_fedrep_does_its_two_phases_one_after_the_other() -> None:
    task, full = network(2), SGD(lr=0.1, steps=2, batches="full")
    final, _ = personal_run(task, Layers(keep=("2",), order="kept-first", kept_steps=3), local=full, rounds=1)
    rows = []
    for client in range(2):
        model = task.layout.flatten(task.module)
        for moving, steps in ((head(task), 3), (_others(task), 2)):
            for _ in range(steps):
                model[moving] -= 0.1 * _gradient(task, client, model)[moving]
        rows.append(model)
    mean = torch.from_numpy(task.federation.weights) @ torch.stack(rows)

    assert torch.allclose(final.model[_others(task)], mean[_others(task)], rtol=0, atol=1e-14)
    assert torch.allclose(kept(final, "layers"), torch.stack(rows)[:, head(task)], rtol=0, atol=1e-14)


def test_golden_shared_first_trains_the_head_on_the_clients_own_shared_layers() -> None:
    task, full = network(1), SGD(lr=0.1, steps=2, batches="full")
    final, _ = personal_run(task, Layers(keep=("2",), order="shared-first", kept_steps=3), local=full, rounds=1)
    model = task.layout.flatten(task.module)
    for moving, steps in ((_others(task), 2), (head(task), 3)):
        for _ in range(steps):
            model[moving] -= 0.1 * _gradient(task, 0, model)[moving]

    assert torch.allclose(final.model[_others(task)], model[_others(task)], rtol=0, atol=1e-14)
    assert torch.allclose(kept(final, "layers")[0], model[head(task)], rtol=0, atol=1e-14)


def test_a_client_is_evaluated_with_the_shared_layers_and_its_own_head() -> None:
    task = network()
    final, records = personal_run(task, Layers(keep=("2",)), local=LOCAL)
    rows = final.model.repeat(6, 1)
    rows[:, head(task)] = kept(final, "layers")
    assert task.federation.holdout is not None
    for client in range(6):
        x, y = task.federation.holdout.of(client)
        out = functional_call(task.module, task.layout.views(rows[client]), (x,))
        assert records[-1].personal["personal loss"][client] == pytest.approx(
            float(task.loss(out, y).mean()), abs=1e-12
        )
        right = float((out.argmax(1) == y).double().mean())
        assert records[-1].personal["personal accuracy"][client] == pytest.approx(right)


def test_fine_tuning_moves_only_the_head_and_is_not_kept() -> None:
    task = network()
    plain, first = personal_run(task, Layers(keep=("2",), order="kept-frozen"), local=LOCAL)
    tuned, second = personal_run(task, Layers(keep=("2",), order="kept-frozen", fine_tune=5), local=LOCAL)

    assert torch.equal(plain.model, tuned.model)
    assert (second[-1].metrics["personal_loss"]) != first[-1].metrics["personal_loss"]


@pytest.mark.parametrize("order", ["together", "kept-first", "shared-first", "kept-frozen"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_contract_engines_agree(order: Any, momentum: float) -> None:
    task, local = network(), replace(LOCAL, momentum=momentum, clip_norm=1.0 if momentum else None)
    steps: dict[str, Any] = {"kept_steps": 3} if order.endswith("first") else {}
    rule = Layers(keep=("2.*",), order=order, **steps)
    one, first = personal_run(task, rule, local=local, engine=Sequential())
    two, second = personal_run(task, rule, local=local, engine=Vectorised(deterministic=True))

    assert torch.allclose(one.model, two.model, rtol=0, atol=1e-12)
    assert np.allclose(first[-1].personal["personal loss"], second[-1].personal["personal loss"], rtol=0, atol=1e-12)


def test_convergence_fedrep_finds_the_common_representation_at_a_linear_rate() -> None:
    """y = ⟨w_i, Bᵀx⟩ with one B for all: the sine of the largest angle between φ and B falls by a factor a round."""
    draws = np.random.default_rng(0)
    basis = np.linalg.qr(draws.normal(size=(6, 2)))[0]  # B
    inputs = [draws.normal(size=(80, 6)) for _ in range(4)]
    pairs = [(torch.tensor(x), torch.tensor(x @ basis @ draws.normal(size=(2, 1)))) for x in inputs]
    first, last = nn.Linear(6, 2, bias=False), nn.Linear(2, 1, bias=False)
    module = nn.Sequential(first, last).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor(basis.T + draws.normal(size=(2, 6), scale=0.4)))
        last.weight.zero_()
    task = Task(federation=from_clients(pairs), module=module, loss=losses.squared_error)
    rule, local = Layers(keep=("1",), order="kept-first", kept_steps=20), SGD(lr=0.1, steps=1, batches="full")
    _, records = personal_run(task, rule, local=local, rounds=40, engine=Vectorised())

    def sine(record: Any) -> float:
        found = np.linalg.qr(task.layout.views(record.state.model)["0.weight"].T.numpy())[0]  # φ
        return float(np.linalg.norm((np.eye(6) - basis @ basis.T) @ found, 2))

    sines = np.array([sine(record) for record in records])
    assert sines[0] > 0.4
    assert sines[-1] < 0.05 * sines[0]
    assert (sines[1:] < 0.98 * sines[:-1]).all()


def test_costs_bytes_count_the_shared_layers_alone() -> None:
    task = network()
    size, private = task.layout.size, len(head(task))
    selection = Uniform(cohort_size=3)
    _, plain = personal_run(task, None, local=LOCAL, rounds=1, selection=selection)
    _, records = personal_run(task, Layers(keep=("2",)), local=LOCAL, rounds=1, selection=selection)

    assert plain[1].costs.bytes_up == 3 * size * 8
    assert records[1].costs.bytes_up == records[1].costs.bytes_down == 3 * (size - private) * 8


@pytest.mark.parametrize("order", ["kept-first", "shared-first"])
def test_costs_gradients_count_both_phases(order: Any) -> None:
    task = network()
    _, plain = personal_run(task, None, local=LOCAL, rounds=1)
    _, records = personal_run(task, Layers(keep=("2",), order=order, kept_steps=3), local=LOCAL, rounds=1)
    _, together = personal_run(task, Layers(keep=("2",)), local=LOCAL, rounds=1)

    kept_phase = samples_used(task.federation.sizes, np.full(6, 3), LOCAL.batch_size, LOCAL.batches).sum()
    shared = plain[1].costs.gradient_evaluations
    assert records[1].costs.gradient_evaluations == shared + kept_phase
    assert together[1].costs.gradient_evaluations == shared


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (("nothing",), "'nothing' matches none of 0.weight, 0.bias, 2.weight, 2.bias"),
        (("*",), "keeps all of"),
        ((), "personal.keep is empty"),
    ],
)
def test_bad_input_patterns_that_leave_nothing_to_share_or_to_keep(keep: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=r"Layers needs .*") as error:
        personal_run(network(), Layers(keep=keep), local=LOCAL)
    assert message in str(error.value)


def test_bad_input_controls_over_layers_that_are_not_sent() -> None:
    with pytest.raises(ConfigError, match="parameters that stay at the client are not sent"):
        personal_run(network(), Layers(keep=("2",)), local=SGD(lr=0.1, steps=1, control="average"))


def _others(task: Task) -> torch.Tensor:
    return task.layout.columns(("0.weight", "0.bias"))


def _gradient(task: Task, client: int, model: torch.Tensor) -> torch.Tensor:
    slab = task.federation.train.fetch(np.array([client]))
    rows = torch.arange(int(slab.starts[0]), int(slab.starts[0] + slab.sizes[0]))
    rows = rows if slab.order is None else slab.order[rows].long()
    flat = model.clone().requires_grad_()
    out = functional_call(task.module, task.layout.views(flat), (slab.x[rows],))
    (gradient,) = torch.autograd.grad(task.loss(out, slab.y[rows]).mean(), flat)
    return gradient
