"""Work schedules: lognormal, by trace, and AdaComm (T7)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.local_claims import NEVER, moved, view
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import PointModel, blob_task, quadratic_task
from turnout import losses
from turnout.array_types import Ids
from turnout.coordinator import Plan
from turnout.data.federation import from_clients
from turnout.engine import Engine, Task
from turnout.errors import ConfigError, UpdateError
from turnout.local import SGD, Adam
from turnout.local.effort import AdaComm, ByTrace, Lognormal
from turnout.local.effort.adacomm import fewer_steps, steps_by_loss
from turnout.local.schedule import Inverse
from turnout.protocols import View


def asked(local: SGD, now: View) -> Ids:
    return local.asked(np.arange(now.population.num_clients), now)


def test_property_lognormal_has_the_mean_and_spread_it_says() -> None:
    steps = asked(SGD(lr=0.1, effort=Lognormal(mean=200, sigma=0.5)), view(clients=20_000))
    assert steps.mean() == pytest.approx(200, rel=0.02)
    assert np.log(steps).std() == pytest.approx(0.5, rel=0.02)
    assert np.median(steps) == pytest.approx(200 * math.exp(-(0.5**2) / 2), rel=0.02)


def test_identity_lognormal_without_spread_is_a_fixed_number() -> None:
    assert asked(SGD(lr=0.1, effort=Lognormal(mean=7, sigma=0)), view(clients=5)).tolist() == [7] * 5


def test_contract_lognormal_keeps_its_limits_and_is_keyed_by_client_and_round() -> None:
    local = SGD(lr=0.1, effort=Lognormal(mean=5, sigma=2, at_least=2, most=20))
    first = asked(local, view(1, clients=500))
    assert (first.min(), first.max()) == (2, 20)
    assert np.array_equal(local.asked(np.array([3, 400]), view(1, clients=500)), first[[3, 400]])
    assert not np.array_equal(asked(local, view(2, clients=500)), first)


def test_contract_epochs_as_a_unit_are_passes_over_ones_own_samples() -> None:
    local = SGD(lr=0.1, batch_size=4, effort=Lognormal(mean=2, sigma=0, unit="epochs"))
    assert asked(local, view(clients=2, size=10)).tolist() == [6, 6]  # three batches an epoch
    traced = SGD(lr=0.1, batch_size=4, effort=ByTrace(traces=((1, 2), (3,)), unit="epochs"))
    assert asked(traced, view(2, clients=2, size=10)).tolist() == [6, 9]


def test_contract_clients_share_a_few_traces_in_turn() -> None:
    assert asked(SGD(lr=0.1, effort=ByTrace(traces=((1,), (2,), (3,)))), view(clients=5)).tolist() == [1, 2, 3, 1, 2]


def test_golden_a_trace_begins_again_when_it_ends() -> None:
    local = SGD(lr=0.1, effort=ByTrace(traces=((1, 2, 3), (7,))))
    assert [asked(local, view(t, clients=2)).tolist() for t in (1, 2, 3, 4)] == [[1, 7], [2, 7], [3, 7], [1, 7]]
    # F = −x: a client moves by η a step, and two of equal size are averaged
    task = quadratic_task([0.0, 0.0], [[1.0], [1.0]], [1, 1])
    local = SGD(lr=0.1, batches="full", effort=ByTrace(traces=((1, 2, 3), (7,))))
    assert float(moved(task, local, 4)) == pytest.approx(0.1 * (1 + 2 + 3 + 1 + 4 * 7) / 2)


@pytest.mark.parametrize("solver", [SGD, Adam])
def test_identity_a_constant_trace_is_fixed_steps(solver: type[Any], any_engine: Callable[[], Engine]) -> None:
    fixed = moved(blob_task(3), solver(lr=0.1, batch_size=5, steps=4), 2)
    traced = moved(blob_task(3), solver(lr=0.1, batch_size=5, effort=ByTrace(traces=((4,),) * 3)), 2, any_engine())
    assert torch.allclose(traced, fixed, rtol=0, atol=1e-11)


@given(start=st.integers(1, 200), shrink=st.floats(0.1, 0.9), ratios=st.lists(st.floats(0, 4), max_size=20))
def test_property_adacomm_never_rises_and_one_is_absorbing(start: int, shrink: float, ratios: list[float]) -> None:
    steps = [start]
    for ratio in ratios:
        steps.append(fewer_steps(steps[-1], start, ratio, shrink))
        assert 1 <= steps[-1] <= steps[-2]
        assert steps[-1] < steps[-2] or steps[-1] == 1


@given(start=st.integers(1, 300))
def test_identity_adacomm_at_a_quarter_of_the_loss_halves_rounding_up(start: int) -> None:
    assert fewer_steps(start, start, 0.25, 0.5) == (math.ceil(start / 2) if start > 1 else 1)
    assert fewer_steps(start, start, 1.0, 0.5) == max(1, start // 2)  # the loss has not moved: the γ-rule


def test_golden_paddle_takes_the_root_of_the_start_as_well() -> None:
    assert steps_by_loss(16, 1.0) == 4
    assert steps_by_loss(16, 0.25) == 2
    assert steps_by_loss(16, 100.0) == 16  # up again, but not beyond τ₀
    assert steps_by_loss(16, 0.0) == 1
    assert fewer_steps(16, 16, 0.25, 0.5) == 8


def told(effort: AdaComm, losses_: list[float], rates: list[float] | None = None) -> list[int]:
    """Return τ of each round and the one after, when rounds report these losses."""
    memory: dict[str, Any]
    memory, steps = {}, []
    for t, loss in enumerate(losses_, start=1):
        steps.append(int(effort.steps(np.array([0]), view(t, memory=memory), np.array([1]))[0]))
        memory = effort.observe(memory, view(t), loss, 0.1 if rates is None else rates[t - 1])
    return [*steps, memory["adacomm_steps"]]


def test_golden_adacomm_over_rounds_by_hand() -> None:
    # every 2 rounds: after round 2, ⌈16·√(1/4)⌉ = 8; after round 4, the loss is level, so ⌊8/2⌋; after 6, ⌈16·√(1/16)⌉
    # is 4, which is no less than 4, so 2
    assert told(AdaComm(start=16, every=2), [4, 1, 1, 1, 1, 0.25]) == [16, 16, 8, 8, 4, 4, 2]
    assert told(AdaComm(start=16, every=1), [4, 1, 1]) == [16, 16, 8, 4]  # round 1 has nothing to compare with
    assert told(AdaComm(start=16, every=2, variant="paddle"), [4, 1, 1, 4]) == [16, 16, 2, 2, 4]
    assert told(AdaComm(start=1, every=1), [4, 4, 4]) == [1, 1, 1, 1]


def test_golden_adacomm_asks_for_more_where_the_rate_has_fallen() -> None:
    # the loss is a sixteenth and the rate a quarter: √(4/16) of 16 is 8, where a constant rate would give 4
    assert told(AdaComm(start=16, every=2), [16, 1], [0.4, 0.1])[-1] == 8
    assert told(AdaComm(start=16, every=2), [16, 1])[-1] == 4


def squares_task(targets: list[float]) -> Task:
    """Clients whose loss is ‖x − y_i‖², which has a floor at zero."""
    pairs = [(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[y]], dtype=torch.float64)) for y in targets]
    return Task(federation=from_clients(pairs), module=PointModel(1), loss=losses.squared_error)


def test_contract_adacomm_adapts_in_a_run_and_the_memory_is_the_runs_own(any_engine: Callable[[], Engine]) -> None:
    local = SGD(lr=0.05, batches="full", effort=AdaComm(start=8, every=2))
    plan = Plan(local=local, rounds=7, evaluate=NEVER)
    final, records = run(squares_task([1.0, 1.0]), plan, engine=any_engine())
    asked_ = [record.asked_steps.tolist() for record in records[1:]]
    # the loss of a round is (1 − x)² averaged over its steps, and a step shrinks 1 − x by 0.9
    mean: Callable[..., Any] = lambda steps: np.mean([0.9 ** (2 * k) for k in range(steps)])  # noqa: E731
    loss, gap, steps, wanted = [], 1.0, 8, []
    for t in range(1, 8):
        wanted.append([steps, steps])
        loss.append(gap**2 * mean(steps))
        gap *= 0.9**steps
        if t % 2 == 0:
            target = math.ceil(8 * math.sqrt(loss[-1] / loss[0]))
            steps = target if target < steps else max(1, steps // 2)
    assert asked_ == wanted
    assert asked_[0] == [8, 8]
    assert asked_[-1] == [1, 1]
    assert final.local["adacomm_steps"] == steps
    assert run(squares_task([1.0, 1.0]), plan)[1][1].asked_steps.tolist() == [8, 8]  # a second run starts afresh


def test_contract_adacomm_keeps_the_controls_of_scaffold() -> None:
    local = SGD(lr=0.05, batches="full", effort=AdaComm(start=4, every=1), control="average")
    final, _ = run(squares_task([1.0, 3.0]), Plan(local=local, rounds=4, evaluate=NEVER))
    assert {"shared", "adacomm_steps"} <= final.local.keys()
    assert "store control" in final.world


def test_contract_a_solver_that_does_not_adapt_remembers_nothing() -> None:
    final, _ = run(squares_task([1.0, 3.0]), Plan(local=SGD(lr=0.05, steps=2), rounds=2, evaluate=NEVER))
    assert final.local == {}


def test_contract_the_rate_of_the_round_reaches_adacomm() -> None:
    local = SGD(lr=0.4, effort=AdaComm(start=16, every=2), schedule=Inverse())
    observe = present(local.observe)
    memory = observe({}, view(1), 16.0)
    assert observe(memory, view(2), 2.0)["adacomm_steps"] == 8  # 16·√(2·2/16)


def test_error_adacomm_needs_a_loss_with_a_floor() -> None:
    local = SGD(lr=0.1, batches="full", effort=AdaComm(start=4))
    with pytest.raises(UpdateError, match=r"AdaComm needs a training loss >= 0.*got -.* in round 1.*set local\.steps"):
        moved(quadratic_task([0.0], [[1.0]], [1]), local)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lognormal(mean=0), r"Lognormal needs mean > 0; got 0\. Change local\.effort\.mean"),
        (lambda: Lognormal(mean=1, sigma=-1), r"sigma >= 0; got -1"),
        (lambda: Lognormal(mean=1, at_least=0), r"at_least >= 1; got 0"),
        (lambda: Lognormal(mean=1, at_least=5, most=4), r"most >= at_least = 5; got 4"),
        (lambda: ByTrace(traces=((1, 2), (0,))), r"traces >= 1; got 0\. Change local\.effort\.traces"),
        (lambda: ByTrace(traces=((),)), r"one round or more in a trace; got none in trace 0"),
        (lambda: ByTrace(traces=()), r"one trace or more; got none\. Change local\.effort\.traces"),
        (lambda: AdaComm(start=0), r"AdaComm needs start >= 1; got 0\. Change local\.effort\.start"),
        (lambda: AdaComm(start=2, every=0), r"every >= 1; got 0"),
        (lambda: AdaComm(start=2, shrink=1), r"shrink in \(0, 1\); got 1"),
        (lambda: SGD(lr=1, epochs=2, effort=AdaComm(start=2)), r'got effort and epochs\. Set local\.epochs = "none"'),
        (lambda: SGD(lr=1, epochs=1, steps=1, effort=AdaComm(start=2)), r"got effort and epochs and steps"),
        (lambda: Adam(lr=1), r"Adam needs epochs or steps, one of the two; got neither.*or give local\.effort a rule"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
