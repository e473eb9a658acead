"""Running statistics: whose they are, where they start, what is averaged and what a client is evaluated with."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.in_blocks import InBlocks
from tests.support.personal_runs import kept, network
from tests.support.statistics_checks import (
    FULL,
    NORMS,
    check_statistics_never_mix,
    check_the_average_has_only_what_is_shared,
    copied,
    holdout_loss,
    normalised,
    samples,
    statistics_run,
    trained_alone,
)
from turnout.coordinator.saving import restored, saved, tables_of
from turnout.engine import Engine, Sequential, Task, Vectorised
from turnout.engine.ray import blocks
from turnout.errors import ConfigError
from turnout.local import Moreau as MoreauSolver
from turnout.personal import APFL, Ditto, FineTune, Layers, Moreau
from turnout.selection import Uniform

INNER = MoreauSolver(lr=0.05, steps=2, batches="full", strength=2.0, inner_steps=2, inner_lr=0.1)
RULES: dict[str, tuple[Any, Any]] = {
    "FedBN": (NORMS, FULL),
    "FedRep with a norm": (Layers(keep=("1",), order="kept-first", kept_steps=2), FULL),
    "shared first": (Layers(keep=("1", "3"), order="shared-first", kept_steps=2), FULL),
    "FedBABU with a norm": (Layers(keep=("3", "4"), order="kept-frozen", fine_tune=2), FULL),
    "FedPer, nothing of it kept": (Layers(keep=("3",)), FULL),
    "ditto": (Ditto(strength=0.5), FULL),
    "fine-tune": (FineTune(steps=2), FULL),
    "moreau": (Moreau(), INNER),
}


def test_golden_statistics_of_two_clients_never_mix() -> None:
    check_statistics_never_mix(NORMS)


def test_golden_the_average_has_only_the_shared_statistics() -> None:
    check_the_average_has_only_what_is_shared(Layers(keep=("1",)))


def test_identity_norms_without_running_statistics_are_fedper_on_those_columns() -> None:
    task = normalised(tracked=False)
    fedbn, one = statistics_run(task, Layers(keep=("1",)))
    fedper, other = statistics_run(task, Layers(keep=("1.weight", "1.bias")))

    assert torch.equal(fedbn.model, fedper.model)
    assert torch.equal(kept(fedbn, "layers"), kept(fedper, "layers"))
    assert np.array_equal(one[-1].personal["personal loss"], other[-1].personal["personal loss"])


def test_identity_all_normalisation_layers_are_those_that_a_list_names() -> None:
    task = normalised()
    every, _ = statistics_run(task, NORMS)
    listed, _ = statistics_run(task, Layers(keep=("1", "4")))

    assert torch.equal(every.model, listed.model)
    assert torch.equal(kept(every, "buffers"), kept(listed, "buffers"))


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(2, 6), nn.LayerNorm(6), nn.RMSNorm(6)], ids=["group", "layer", "root mean square"]
)
def test_contract_normalisation_layers_are_found_by_their_type(norm: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 3)).double()
    task = Task(federation=network().federation, module=module, loss=network().loss)

    names = {f"1.{name}" for name, _ in norm.named_parameters()}
    assert set(NORMS.kept_names(task.layout)) == names


def test_identity_one_client_with_fedbn_is_plain_pytorch() -> None:
    task = normalised(1)
    final, _ = statistics_run(task, NORMS, rounds=3)
    model, buffers = trained_alone(task, 0, 6)
    columns = task.layout.columns(NORMS.kept_names(task.layout))
    joined = final.model.clone()
    joined[columns] = kept(final, "layers")[0]

    assert torch.allclose(joined, model, rtol=0, atol=1e-13)
    assert torch.allclose(kept(final, "buffers")[0], buffers, rtol=0, atol=1e-13)


def test_a_client_is_evaluated_with_its_own_statistics() -> None:
    task = normalised()
    final, records = statistics_run(task, NORMS)
    columns = task.layout.columns(NORMS.kept_names(task.layout))
    models = final.model.repeat(6, 1)
    models[:, columns] = kept(final, "layers")
    losses = [holdout_loss(task, i, models[i], kept(final, "buffers")[i]) for i in range(6)]

    assert np.allclose(records[-1].personal["personal loss"], losses, rtol=0, atol=1e-12)


def test_identity_without_a_pull_ditto_trains_alone_with_statistics_of_its_own() -> None:
    task = normalised()
    final, records = statistics_run(task, Ditto(strength=0.0), rounds=2)
    alone = [trained_alone(task, client, 4) for client in range(6)]
    losses = [holdout_loss(task, client, *alone[client]) for client in range(6)]

    assert torch.allclose(kept(final), torch.stack([model for model, _ in alone]), rtol=0, atol=1e-13)
    assert torch.allclose(kept(final, "buffers"), torch.stack([buffers for _, buffers in alone]), rtol=0, atol=1e-13)
    assert np.allclose(records[-1].personal["personal loss"], losses, rtol=0, atol=1e-12)


def test_identity_the_shared_path_and_its_statistics_do_not_know_of_ditto() -> None:
    task = normalised()
    plain, _ = statistics_run(task, None)
    final, _ = statistics_run(task, Ditto(strength=0.5))
    assert final.buffers is not None
    assert plain.buffers is not None

    assert torch.equal(final.model, plain.model)
    assert torch.equal(final.buffers, plain.buffers)


def test_golden_fine_tuning_moves_the_statistics_from_the_shared_ones() -> None:
    task = normalised()
    final, records = statistics_run(task, FineTune(steps=3), rounds=2)
    module = task.layout.load(copied(task), final.model, final.buffers)
    there = Task(federation=task.federation, module=module, loss=task.loss)
    for client in range(6):
        tuned = trained_alone(there, client, 3)
        assert records[-1].personal["personal loss"][client] == pytest.approx(
            holdout_loss(task, client, *tuned), abs=1e-12
        )


def test_golden_fedrep_moves_statistics_in_both_phases() -> None:
    task, rule = normalised(2), Layers(keep=("3",), order="kept-first", kept_steps=3)
    final, _ = statistics_run(task, rule, rounds=1)
    ends = []
    for client in range(2):
        (x, y), module = samples(task, client), copied(task)
        for is_head, steps in ((True, 3), (False, 2)):
            moving = [param for name, param in module.named_parameters() if name.startswith("3.") == is_head]
            optimiser = torch.optim.SGD(moving, lr=0.1)
            for _ in range(steps):
                optimiser.zero_grad()
                torch.autograd.backward(task.loss(module(x), y).mean())
                optimiser.step()
        ends.append(task.layout.flatten_buffers(module))
    assert final.buffers is not None

    mean = torch.from_numpy(task.federation.weights) @ torch.stack(ends)
    assert torch.allclose(final.buffers, mean, rtol=0, atol=1e-13)


ENGINES: dict[str, Engine] = {
    "stacked": Vectorised(deterministic=True),
    "stacked two by two": Vectorised(block=2),
    "one by one": Vectorised(stack=False),
    "in blocks": InBlocks(),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RULES)
def test_engine_engines_agree(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_WORK", 2e3)
    monkeypatch.setattr(blocks, "BLOCK_SAMPLES", 10)
    rule, local = RULES[name]
    task = normalised()
    one, first = statistics_run(task, rule, local=local, engine=Sequential())
    two, second = statistics_run(task, rule, local=local, engine=ENGINES[engine])
    assert one.buffers is not None
    assert two.buffers is not None

    assert torch.allclose(one.model, two.model, rtol=0, atol=1e-11)
    assert torch.allclose(one.buffers, two.buffers, rtol=0, atol=1e-11)
    for table_name, table in tables_of(one).items():
        there = tables_of(two)[table_name].take(np.arange(6))
        assert torch.allclose(table.take(np.arange(6)), there, rtol=0, atol=1e-11)
    for measure, values in first[-1].personal.items():
        assert np.allclose(values, second[-1].personal[measure], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", RULES)
def test_contract_saved_half_way_and_restored_ends_the_same(name: str) -> None:
    rule, local = RULES[name]
    task, more = normalised(), {"selection": Uniform(cohort_size=3), "local": local}
    whole, whole_records = statistics_run(task, rule, rounds=6, **more)
    half, _ = statistics_run(task, rule, rounds=3, **more)
    tensors, rest = saved(half)
    state = restored({k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(rest)), half)
    for table_name, table in tables_of(half).items():
        ids = np.flatnonzero(table.seen)
        tables_of(state)[table_name].put(ids, table.take(ids))
    final, records = statistics_run(task, rule, rounds=6, state=state, **more)

    assert torch.equal(final.model, whole.model)
    for measure, values in whole_records[-1].personal.items():
        assert np.array_equal(values, records[-1].personal[measure])
    for table_name, table in tables_of(whole).items():
        assert torch.equal(table.take(np.arange(6)), tables_of(final)[table_name].take(np.arange(6)))


def test_a_client_that_was_never_asked_has_the_first_statistics() -> None:
    task = normalised()
    final, records = statistics_run(task, NORMS, rounds=1, selection=Uniform(cohort_size=2))
    asked = records[1].asked
    others = np.setdiff1d(np.arange(6), asked)
    first = task.layout.flatten_buffers(task.module)

    assert torch.equal(kept(final, "buffers")[others], first.repeat(4, 1))
    assert not torch.equal(kept(final, "buffers")[asked], first.repeat(2, 1))


def test_costs_kept_normalisation_layers_are_not_sent() -> None:
    task = normalised()
    _, plain = statistics_run(task, None, rounds=1)
    _, records = statistics_run(task, NORMS, rounds=1)
    kept_numbers = 2 * 6 + 2 * 3

    assert plain[1].costs.bytes_up - records[1].costs.bytes_up == 6 * 8 * kept_numbers


def test_error_a_mixture_of_models_has_no_statistics() -> None:
    with pytest.raises(ConfigError, match=r"APFL cannot keep running statistics for each client's own model"):
        statistics_run(normalised(), APFL())


def test_error_nothing_is_kept() -> None:
    with pytest.raises(ConfigError, match=r"Layers needs layers that stay at the client; personal.keep is empty"):
        Layers()


def test_error_a_model_without_normalisation_layers() -> None:
    with pytest.raises(ConfigError, match=r"\[\] and the normalisation layers keeps none of 0.weight"):
        statistics_run(network(), replace(NORMS))
