"""FedAvgM and slow momentum: identities, cases worked by hand, and rates that change."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import run
from tests.support.server_steps import close, facts_of, followed, step_of
from tests.support.tasks import blob_task
from turnout.coordinator import Cadence, Plan
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.server import SGD as ServerSGD
from turnout.server import FedAvgM, SlowMomentum
from turnout.server.slow_momentum import mean_local_lr

directions = st.lists(st.lists(st.floats(-10, 10), min_size=2, max_size=2), min_size=1, max_size=6)


@given(directions, st.sampled_from([FedAvgM, SlowMomentum]), st.floats(0.01, 3))
def test_identity_no_momentum_is_server_sgd(given_directions: list[list[float]], rule: type[Any], lr: float) -> None:
    plain = followed(ServerSGD(lr=lr), given_directions)
    rolled = followed(rule(lr=lr, momentum=0.0), given_directions)
    assert close(torch.stack(rolled), torch.stack(plain))


@given(directions, st.floats(0, 0.99), st.floats(1e-3, 10))
def test_identity_slow_momentum_at_a_constant_local_rate_is_fedavgm(
    given_directions: list[list[float]], momentum: float, local_lr: float
) -> None:
    heavy = followed(FedAvgM(lr=0.7, momentum=momentum), given_directions)
    slow = followed(SlowMomentum(lr=0.7, momentum=momentum), given_directions, local_lr=local_lr)
    assert close(torch.stack(slow), torch.stack(heavy))


@pytest.mark.parametrize("rule", [FedAvgM, SlowMomentum])
def test_identity_no_momentum_is_fedavg_through_the_engine(rule: type[Any]) -> None:
    task, local = blob_task(4), SGD(lr=0.1, batch_size=4, epochs=1)
    plan = Plan(local=local, rounds=3, evaluate=Cadence(every=10**9))
    plain, _ = run(task, plan)
    rolled, _ = run(task, replace(plan, server=rule(momentum=0.0)))
    assert close(rolled.model, plain.model)


def test_golden_fedavgm_over_three_rounds() -> None:
    # u = 1, 0, 2; β = ½, η_g = 2: b = 1, ½, 2¼; x = −2, −3, −7½
    models = followed(FedAvgM(lr=2.0, momentum=0.5), [[1.0], [0.0], [2.0]])
    assert [float(m) for m in models] == [-2.0, -3.0, -7.5]


def test_golden_slow_momentum_replays_the_past_at_the_new_rate() -> None:
    # η_l = 1 then ½; β = ½; u = 1, 1: b = 1, then ½·1 + 1/½ = 2½; x = −1, then −1 − ½·2½ = −2¼
    first = followed(SlowMomentum(momentum=0.5), [[1.0]], local_lr=1.0)
    assert float(first[0]) == -1.0
    rule = SlowMomentum(momentum=0.5)
    moved = rule.advance(torch.zeros(1, dtype=torch.float64), step_of([[1.0]], local_lr=1.0), {})
    moved = rule.advance(moved.model, step_of([[1.0]], local_lr=0.5), moved.memory)
    assert float(moved.model) == pytest.approx(-2.25, abs=1e-15)
    # FedAvgM would have pushed with the old rate's momentum: −1 − (½ + 1) = −2½
    assert float(followed(FedAvgM(momentum=0.5), [[1.0], [1.0]])[-1]) == -2.5


def test_golden_unequal_local_rates_count_by_weight_and_draws() -> None:
    # (¼·1·0.1 + ¾·2·0.4) / (¼ + 1½)
    facts = facts_of(2, weights=[0.25, 0.75], multiplicity=[1, 2], local_lr=[0.1, 0.4])
    assert mean_local_lr(facts) == pytest.approx(0.625 / 1.75)
    assert mean_local_lr(facts_of(2, weights=[0.0, 0.0], local_lr=[0.1, 0.3])) == pytest.approx(0.2)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=2))
def test_property_the_fresh_direction_passes_whole_whatever_the_local_rates(rates: list[float]) -> None:
    moved = SlowMomentum().advance(torch.zeros(2, dtype=torch.float64), step_of(np.eye(2), local_lr=rates), {})
    assert close(moved.model, torch.full((2,), -0.5, dtype=torch.float64))


@pytest.mark.parametrize("rule", [FedAvgM, SlowMomentum])
def test_error_settings_that_cannot_be_name_the_setting(rule: type[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"{rule.__name__} needs lr > 0; got 0\. Change server\.lr"):
        rule(lr=0)
    with pytest.raises(ConfigError, match=r"needs momentum in \[0, 1\); got 1\. Change server\.momentum"):
        rule(momentum=1)
