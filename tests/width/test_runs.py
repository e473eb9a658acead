"""Clients of different widths in whole runs: identities, the mean per parameter, costs, engines, resume, refusals."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from tests.support.width_checks import (
    assert_a_parameter_is_averaged_over_the_clients_that_train_it,
    assert_a_proximal_term_pulls_each_client_towards_what_it_was_sent,
    assert_bytes_and_gradients_count_the_slice,
    assert_clients_of_a_round_share_the_window,
    assert_decay_and_momentum_act_inside_the_slice_alone,
    assert_evaluation_is_not_scaled,
    assert_one_round_is_the_mean_of_what_clients_do_alone,
    assert_the_scaler_divides_hidden_outputs_in_training,
)
from tests.support.width_runs import (
    LOCAL,
    TASKS,
    federation_of,
    masked_output,
    mlp,
    slices_of,
    task_of,
    width_run,
)
from turnout import losses
from turnout.aggregation import FedAvg, FedNova, FedVARP, Krum, Median
from turnout.analysis.audit import audit
from turnout.asynchrony import FedBuff
from turnout.attacks import LabelFlip, SignFlip
from turnout.coordinator import Trust
from turnout.coordinator.saving import restored, saved
from turnout.data import Digits
from turnout.data.federation import from_clients
from turnout.engine import Sequential, Task
from turnout.engine.vectorised.engine import Vectorised
from turnout.errors import ConfigError, JournalError
from turnout.filtering import Greedy
from turnout.fleet import Bernoulli, Deadline, Fleet
from turnout.local import SGD, Adam
from turnout.models import MLP, Softmax
from turnout.personal import Ditto
from turnout.selection import Optimal, Uniform
from turnout.server import FedAdam, FedExP
from turnout.width import Nested, Ordered, Random, Rolling

RATES = (1.0, 0.5, 0.25)
RULES: dict[str, Any] = {
    "nested": Nested(rates=RATES),
    "nested drawn": Nested(rates=RATES, assign="drawn"),
    "rolling": Rolling(rates=RATES),
    "random": Random(rates=RATES),
    "ordered": Ordered(rates=RATES),
}


@pytest.mark.parametrize("rule", [Nested, Rolling, Random, Ordered])
@pytest.mark.parametrize("aggregation", [FedAvg(), FedAvg(weighting="ht"), FedNova()])
def test_identity_every_rate_one_is_the_run_without_widths(rule: Any, aggregation: Any) -> None:
    more: dict[str, Any] = {"aggregation": aggregation, "selection": Uniform(cohort_size=4)}
    plain, plain_records = width_run(mlp(), None, **more)
    whole, records = width_run(mlp(), rule(rates=(1.0,)), **more)
    assert torch.equal(plain.model, whole.model)
    assert [record.costs for record in records] == [record.costs for record in plain_records]


def test_identity_the_scaler_has_no_effect_at_rate_one() -> None:
    plain, _ = width_run(mlp(), Nested(rates=(1.0,)))
    scaled, _ = width_run(mlp(), Nested(rates=(1.0,), scaler=True))
    assert torch.equal(plain.model, scaled.model)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(block=2)], ids=["sequential", "vectorised"])
def test_golden_the_scaler_divides_hidden_outputs_in_training(engine: Any) -> None:
    assert_the_scaler_divides_hidden_outputs_in_training(engine)


def test_identity_the_scaler_has_no_effect_in_evaluation() -> None:
    assert_evaluation_is_not_scaled()


def test_golden_clients_of_a_round_share_the_window() -> None:
    assert_clients_of_a_round_share_the_window()


def test_identity_rolling_without_rolling_is_nested() -> None:
    nested, _ = width_run(mlp(), Nested(rates=RATES))
    still, _ = width_run(mlp(), Rolling(rates=RATES, stride=0))
    assert torch.equal(nested.model, still.model)


def test_identity_ordered_steps_of_one_rate_are_nested() -> None:
    nested, _ = width_run(mlp(), Nested(rates=(0.5,)))
    ordered, _ = width_run(mlp(), Ordered(rates=(0.5,)))
    assert torch.equal(nested.model, ordered.model)


@pytest.mark.parametrize(
    "more", [{}, {"lr_decay": 0.5}, {"prox_strength": 0.7}, {"weight_decay": 0.1}, {"clip_norm": 0.3}], ids=str
)
def test_identity_steps_that_are_asked_for_one_by_one_are_the_same_steps(more: dict[str, Any]) -> None:
    """With two rates that mean the same units, every step is a request of its own, and nothing else changes."""
    local = SGD(lr=0.1, epochs=3, batch_size=4, **more)
    nested, records = width_run(mlp(), Nested(rates=(0.5,)), local=local)
    ordered, others = width_run(mlp(), Ordered(rates=(0.5, 0.49)), local=local)
    torch.testing.assert_close(nested.model, ordered.model, rtol=0, atol=1e-14)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_property_what_no_client_trains_stays_as_it_was(name: str) -> None:
    task = mlp()
    rule = type(RULES[name])(rates=(0.5, 0.25))
    before = task.layout.flatten(task.module)
    after, _ = width_run(task, rule, rounds=1)
    slices = slices_of(task)
    if name in ("nested", "ordered", "nested drawn"):
        widest = slices.submodel([np.arange(-(-size // 2)) for size in slices.sizes]).columns
        outside = torch.ones(len(before), dtype=torch.bool)
        outside[widest] = False
        assert torch.equal(before[outside], after.model[outside])
        assert (before[widest] != after.model[widest]).any()
    assert 0 < (before == after.model).sum() < len(before)


def test_golden_a_parameter_is_averaged_over_the_clients_that_train_it() -> None:
    assert_a_parameter_is_averaged_over_the_clients_that_train_it()


def test_golden_one_round_is_the_mean_per_parameter_of_what_clients_do_alone() -> None:
    assert_one_round_is_the_mean_of_what_clients_do_alone()


def test_golden_a_proximal_term_pulls_each_client_towards_what_it_was_sent() -> None:
    assert_a_proximal_term_pulls_each_client_towards_what_it_was_sent()


def test_property_decay_and_momentum_act_inside_the_slice_alone() -> None:
    assert_decay_and_momentum_act_inside_the_slice_alone()


def test_engine_both_engines_agree_on_a_network_with_group_norm() -> None:
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8))
    module = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    draws = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=draws)
    task, rule = task_of(module, federation_of((1, 6, 6))), Nested(rates=RATES)
    local = SGD(lr=0.05, steps=2, batch_size=4)
    one, records = width_run(task, rule, rounds=3, local=local, engine=Sequential())
    other, others = width_run(task, rule, rounds=3, local=local, engine=Vectorised(block=2))
    torch.testing.assert_close(one.model, other.model)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-6)
    assert records[-1].metrics["loss_at_width_0.5"] == pytest.approx(others[-1].metrics["loss_at_width_0.5"])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", RULES)
def test_engine_both_engines_agree(task: str, name: str) -> None:
    local = SGD(lr=0.05, steps=3, batch_size=4, prox_strength=0.1)
    one, records = width_run(TASKS[task](), RULES[name], rounds=2, local=local, engine=Sequential())
    other, others = width_run(TASKS[task](), RULES[name], rounds=2, local=local, engine=Vectorised(block=2))
    torch.testing.assert_close(one.model, other.model)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-6)
    assert records[-1].costs == others[-1].costs


def test_engine_random_units_of_a_first_layer_that_is_written_at_the_end_agree() -> None:
    """A first layer whose outputs and inputs are more than a client's visits to samples; each row has its own start."""
    module = MLP(hidden=(40,)).build((20,), 3, torch.Generator().manual_seed(1))
    task, rule = task_of(module, federation_of((20,))), Random(rates=(0.5,))
    local = SGD(lr=0.1, steps=3, batch_size=4, momentum=0.5, weight_decay=0.1, prox_strength=0.5)
    one, records = width_run(task, rule, rounds=2, local=local, engine=Sequential())
    other, others = width_run(task, rule, rounds=2, local=local, engine=Vectorised(block=4))
    torch.testing.assert_close(one.model, other.model)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-6)


def test_convergence_ordered_units_of_a_linear_autoencoder_are_the_singular_vectors_in_order() -> None:
    """The first k units alone are best where they project on the first k right singular vectors of the samples."""
    draws = torch.Generator().manual_seed(3)
    directions = torch.linalg.qr(torch.randn(4, 4, generator=draws).double())[0]
    x = 2.0 * torch.diag(torch.tensor([2.0, 1.5, 1.0, 0.5]).double()) @ directions.T  # four samples
    module = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 4, bias=False))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=draws)
    task = Task(federation=from_clients([(x, x)] * 3), module=module.double(), loss=losses.squared_error)
    local, error = SGD(lr=0.1, steps=10), {}
    for rule in (Ordered(rates=(1.0, 2 / 3, 1 / 3), assign="listed"), Nested(rates=(1.0,))):
        final, _ = width_run(task, rule, rounds=60, local=local)
        encoder, decoder = task.layout.views(final.model).values()
        for rank in (1, 2, 3):
            best = directions[:, :rank] @ directions[:, :rank].T
            error[type(rule), rank] = float((decoder[:, :rank] @ encoder[:rank] - best).abs().max())
    assert max(error[Ordered, rank] for rank in (1, 2, 3)) < 1e-3
    assert error[Nested, 3] < 1e-3  # the whole is as good,
    assert min(error[Nested, rank] for rank in (1, 2)) > 0.05  # and its units have no order


@pytest.mark.parametrize("name", RULES)
def test_contract_saved_half_way_and_restored_ends_the_same(name: str) -> None:
    more = {"selection": Uniform(cohort_size=3), "server": FedAdam(lr=0.1)}
    whole, _ = width_run(mlp(), RULES[name], rounds=6, **more)
    half, _ = width_run(mlp(), RULES[name], rounds=3, **more)
    tensors, rest = saved(half)
    state = restored({k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(rest)), half)
    final, _ = width_run(mlp(), RULES[name], rounds=6, state=state, **more)
    assert torch.equal(final.model, whole.model)


@pytest.mark.parametrize("name", RULES)
def test_contract_rows_and_their_sum_give_the_same_model(name: str) -> None:
    summed, _ = width_run(mlp(), RULES[name])
    rows, _ = width_run(mlp(), RULES[name], trust=Trust(max_norm=1e6))  # checks norms, so it asks for rows
    torch.testing.assert_close(summed.model, rows.model)


def test_golden_bytes_and_gradients_count_the_slice() -> None:
    assert_bytes_and_gradients_count_the_slice()


def test_golden_the_clock_counts_the_bytes_and_the_steps_of_the_slice() -> None:
    task, clock = mlp(), Deadline(seconds_per_step=2.0, down_bandwidth=8.0, up_bandwidth=4.0)
    local = SGD(lr=0.1, steps=3, batch_size=4)
    for rate, numbers, products in ((1.0, 123, 106), (0.5, 51, 41)):
        _, records = width_run(task, Nested(rates=(rate,)), rounds=1, local=local, fleet=Fleet(clock=clock))
        seconds = 8 * numbers / 8 + 3 * 2.0 * products / 106 + 8 * numbers / 4
        assert records[-1].costs.sim_seconds == pytest.approx(seconds)


def test_golden_slow_devices_train_narrow_models() -> None:
    seconds = (6.0, 1.0, 2.0, 5.0, 4.0, 3.0)
    fleet = Fleet(clock=Deadline(seconds_per_step=seconds, down_bandwidth=np.inf, up_bandwidth=np.inf))
    local, rule = SGD(lr=0.1, steps=1, batch_size=4), Nested(rates=RATES, assign="by-speed")
    _, records = width_run(mlp(), rule, rounds=1, local=local, fleet=fleet)
    costs = np.array([1.0, 41 / 106, 20 / 106])
    expected = np.array(seconds) * costs[[2, 0, 0, 2, 1, 1]]
    assert records[-1].progress is not None
    assert records[-1].progress.seconds == pytest.approx(expected)


def test_contract_widths_go_with_availability_selection_and_server_rules() -> None:
    more: dict[str, Any] = {"fleet": Fleet(availability=Bernoulli(prob=0.6)), "server": FedAdam(lr=0.1)}
    final, records = width_run(mlp(), Random(rates=RATES), rounds=4, attack=LabelFlip(fraction=0.3), **more)
    assert torch.isfinite(final.model).all()
    assert len(records) == 5


@pytest.mark.parametrize("rule", [Nested(rates=RATES), Ordered(rates=RATES)])
def test_golden_narrow_parts_of_the_model_are_measured_by_themselves(rule: Any) -> None:
    task = mlp()
    final, records = width_run(task, rule)
    slices = slices_of(task)
    for rate, sizes in ((0.5, (4, 3)), (0.25, (2, 2))):
        units = [np.arange(size) for size in sizes]
        assert task.federation.test is not None
        out = masked_output(slices, final.model, units, task.federation.test.x)
        loss = torch.nn.functional.cross_entropy(out, task.federation.test.y)
        assert records[-1].metrics[f"loss_at_width_{rate:g}"] == pytest.approx(float(loss))
    assert "loss_at_width_1" not in records[-1].metrics
    assert not any("width" in name for name in width_run(task, Rolling(rates=RATES))[1][-1].metrics)


def test_error_an_audit_of_different_widths_says_why_there_is_none() -> None:
    arms = (to.arm("whole"), to.arm("narrow", width=Nested(rates=(1.0, 0.5))))
    study = to.Study(
        data=Digits(clients=5),
        model=MLP(hidden=(8,)),
        local=SGD(lr=0.1, steps=2, batch_size=8),
        rounds=2,
        arms=arms,
    )
    loaded = study.run(progress=False).loaded
    assert audit(loaded, "whole", 0).num_clients == 5
    with pytest.raises(JournalError, match="clients of arm 'narrow' train models of different widths"):
        audit(loaded, "narrow", 0)


def test_error_a_model_without_hidden_units_is_refused_before_the_first_round() -> None:
    local, width = SGD(lr=0.1, steps=2), Nested(rates=(0.5,))
    study = to.Study(data=Digits(clients=5), model=Softmax(), local=local, rounds=1, width=width)
    with pytest.raises(ConfigError, match="width needs a model that can be cut; Sequential cannot: it has no hidden"):
        study.run(progress=False)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "krum": (Nested(rates=RATES), {"aggregation": Krum(num_attackers=1)}, "Krum combines whole updates"),
    "median": (Nested(rates=RATES), {"aggregation": Median()}, "Median combines whole updates"),
    "fedvarp": (Nested(rates=RATES), {"aggregation": FedVARP()}, "FedVARP combines whole updates"),
    "scaffold": (
        Nested(rates=RATES),
        {"local": SGD(lr=0.1, steps=2, control="average")},
        "what SGD keeps between rounds is of the whole model",
    ),
    "personal": (Nested(rates=RATES), {"personal": Ditto()}, "Ditto trains whole models at the clients"),
    "fedbuff": (
        Nested(rates=RATES),
        {"asynchrony": FedBuff(buffer_size=2, concurrency=4), "fleet": Fleet(clock=Deadline())},
        "updates of different rounds have different parameters",
    ),
    "attack": (Nested(rates=RATES), {"attack": SignFlip(fraction=0.3)}, "SignFlip forges updates of the whole model"),
    "filter": (Nested(rates=RATES), {"filtering": Greedy()}, "Greedy may average updates"),
    "selection": (
        Nested(rates=RATES),
        {"selection": Optimal(cohort_size=2, pool_size=4), "aggregation": FedAvg(weighting="ht")},
        "compares updates before they are sent",
    ),
    "fedexp": (Nested(rates=RATES), {"server": FedExP()}, "FedExP needs a direction that is one weighted sum"),
    "speed": (Nested(rates=RATES, assign="by-speed"), {}, 'assign = "by-speed" needs a clock'),
    "momentum": (
        Ordered(rates=RATES),
        {"local": SGD(lr=0.1, steps=2, momentum=0.9)},
        "the width changes at every local step, and SGD carries",
    ),
    "adam": (Ordered(rates=RATES), {"local": Adam(lr=0.1, steps=2)}, "Adam carries momentum or other state"),
}


class _Backwards:
    """A rule of one's own with units in the wrong order."""

    def units(self, group: int, size: int, rate: float, clients: Any, view: Any) -> Any:
        return np.arange(size)[::-1]


class _OneEach:
    """A rule of one's own with only the axis's method: every client trains one unit of each layer, its own."""

    def units(self, group: int, size: int, rate: float, clients: Any, view: Any) -> Any:
        return clients[:, None] % size


def test_contract_a_rule_of_ones_own_needs_only_units() -> None:
    _, records = width_run(mlp(), _OneEach(), rounds=1)
    assert records[-1].costs.bytes_down == 6 * 8 * (5 + 1 + 1 + 1 + 3 + 3)


def test_error_units_that_are_none_name_the_rule_and_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"_Backwards needs units from 0 to 7, ascending .* for 6 clients"):
        width_run(mlp(), _Backwards())


@pytest.mark.parametrize("name", REFUSED)
def test_error_what_does_not_go_together_says_why(name: str) -> None:
    rule, more, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        width_run(mlp(), rule, **{"local": LOCAL, **more})
