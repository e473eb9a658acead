"""Adagrad, Adam and Yogi at the client: against PyTorch, by hand, and what the corrections take out (T8)."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local_claims import NEVER, moved, together
from tests.support.tasks import blob_task, quadratic_task, train_of
from turnout.aggregation import FedAvg, FedNova, Joint, SchemeC
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD, Adagrad, Adam, Yogi
from turnout.local.effort import ByTrace
from turnout.protocols import Aggregation, Local, SlotUpdate
from turnout.server import SGD as ServerSGD
from turnout.server import FedExP

ADAPTIVE = [Adagrad, Adam, Yogi]
UNSEEN = 1e20  # an initial accumulator beside which no gradient can be seen: P is 1/√v₀ to the last bit
STEPS = ByTrace(traces=((1,), (3,), (7,)))


@pytest.mark.parametrize(
    ("local", "theirs"),
    [
        (Adagrad(lr=0.1, steps=6, batches="full"), lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-3)),
        (
            Adagrad(lr=0.1, steps=6, batches="full", initial_accumulator=0.5, adaptivity=0.01),
            lambda p: torch.optim.Adagrad(p, lr=0.1, eps=0.01, initial_accumulator_value=0.5),
        ),
        (
            Adam(lr=0.1, steps=6, batches="full", bias_correction=True),
            lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-3),
        ),
        (
            Adam(lr=0.1, steps=6, batches="full", bias_correction=True, beta1=0.5, beta2=0.7, adaptivity=0.1),
            lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.5, 0.7), eps=0.1),
        ),
    ],
)
def test_identity_same_as_torch(local: Local, theirs: Callable[..., Any], any_engine: Callable[[], Engine]) -> None:
    task = blob_task(1)
    final = moved(task, local, engine=any_engine())
    x, y = train_of(task.federation).of(0)
    optimiser = theirs(task.module.parameters())
    for _ in range(6):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(task.module(x), y).mean())
        optimiser.step()
    assert torch.allclose(final, task.layout.flatten(task.module), rtol=0, atol=1e-12)


def one_step(solver: type[Any], **more: Any) -> Local:
    result: Local = solver(lr=0.1, steps=1, batches="full", **more)
    return result


def test_identity_yogi_is_adam_at_the_first_step_and_not_at_the_second(any_engine: Callable[[], Engine]) -> None:
    assert torch.allclose(
        moved(blob_task(3), one_step(Yogi), engine=any_engine()), moved(blob_task(3), one_step(Adam)), atol=1e-12
    )
    two = [moved(blob_task(3), solver(lr=0.1, steps=2, batches="full")) for solver in (Yogi, Adam)]
    assert not torch.allclose(two[0], two[1], atol=1e-6)


def test_golden_two_steps_by_hand(any_engine: Callable[[], Engine]) -> None:
    # F = −2x, so g = −2 throughout; η = 1, τ_a = 1, β1 = β2 = ½
    # Adagrad  v = 4, 8:  x = 2/3 + 2/(√8 + 1)
    # Adam     m = −1, −1½; v = 2, 3:  x = 1/(√2 + 1) + 1.5/(√3 + 1)
    # Yogi     v = 2, then 2 − ½·4·sign(2 − 4) = 4:  x = 1/(√2 + 1) + 1.5/3
    task = quadratic_task([0.0], [[2.0]], [1])
    common: dict[str, Any] = {"lr": 1.0, "steps": 2, "batches": "full", "adaptivity": 1.0}
    betas: dict[str, Any] = {"beta1": 0.5, "beta2": 0.5}
    root = np.sqrt
    for local, expected in (
        (Adagrad(**common), 2 / 3 + 2 / (root(8) + 1)),
        (Adam(**common, **betas), 1 / (root(2) + 1) + 1.5 / (root(3) + 1)),
        (Yogi(**common, **betas), 1 / (root(2) + 1) + 1.5 / 3),
        (Yogi(**common, **betas, initial_accumulator=9.0), 1 / (root(7) + 1) + 1.5 / (root(5) + 1)),
        (Yogi(**common, **betas, initial_accumulator=4.0), 1 / 3 + 1.5 / 3),  # v = g² stays
    ):
        assert float(moved(task, local, engine=any_engine())) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", ADAPTIVE)
def test_identity_one_number_and_one_per_row_move_parameters_alike(solver: type[Any], dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    gradients = torch.randn(8, 3, 20, generator=draw, dtype=torch.float64).to(dtype)
    local, ends = solver(lr=0.1, steps=8, initial_accumulator=0.5), []
    numbers = {"lr": local.lr, **local.numbers()}
    for own in (numbers, {name: torch.full((3, 1), value, dtype=dtype) for name, value in numbers.items()}):
        param = torch.zeros(3, 20, dtype=dtype)
        (state,) = local.begin([param])
        for step, gradient in enumerate(gradients):
            local.update(SlotUpdate(param, gradient.clone(), torch.zeros_like(param), state, own, step))
        ends.append((param, state))
    (param, state), (per_row, its_state) = ends
    torch.testing.assert_close(param, per_row)
    for name, moment in state.items():
        torch.testing.assert_close(moment, its_state[name])


def scale_of(local: Any, gradients: list[float]) -> tuple[float, float]:
    """Return C after steps along these gradients, as the solver itself adds it up, and the change."""
    param = torch.zeros(1, 1, dtype=torch.float64)
    (state,) = local.begin([param])
    numbers = {"lr": local.lr, **local.numbers()}
    for k, gradient in enumerate(gradients):
        local.update(SlotUpdate(param, torch.full_like(param, gradient), torch.zeros_like(param), state, numbers, k))
    return float(state["scale"]), float(-param)


def test_golden_the_weight_of_the_preconditioner_by_hand() -> None:
    # g = −2 twice, τ_a = 1, β1 = β2 = ½.  Adagrad: 1/3 + 1/(√8+1)
    # Adam: P = 1/(√2+1), 1/(√3+1); a = P₀/2, then P₀/4 + P₁/2; C is their sum
    # Adam, bias-corrected: v̂ = 4, 4, so P = ⅓, ⅓; a = 1/6, 1/4; a/(1−β1ᵏ⁺¹) = ⅓, ⅓
    common: dict[str, Any] = {"lr": 1.0, "steps": 2, "adaptivity": 1.0, "correction": "joint"}
    betas: dict[str, Any] = {"beta1": 0.5, "beta2": 0.5}
    first, second = 1 / (np.sqrt(2) + 1), 1 / (np.sqrt(3) + 1)
    assert scale_of(Adagrad(**common), [-2, -2])[0] == pytest.approx(1 / 3 + 1 / (np.sqrt(8) + 1), abs=1e-14)
    assert scale_of(Adam(**common, **betas), [-2, -2])[0] == pytest.approx(
        first / 2 + first / 4 + second / 2, abs=1e-14
    )
    scale, change = scale_of(Adam(**common, **betas, bias_correction=True), [-2, -2])
    assert scale == pytest.approx(2 / 3, abs=1e-14)
    assert change == pytest.approx(-2 * scale, abs=1e-14)  # a constant gradient is what the corrected change says


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_identity_a_constant_preconditioner_makes_c_the_displacement(solver: type[Any]) -> None:
    # v₀ beyond all gradients: Δ = η·g·C for a constant gradient, whatever the momentum
    local = solver(lr=1.0, steps=5, initial_accumulator=UNSEEN, correction="local", **_slow(solver))
    scale, change = scale_of(local, [-3.0] * 5)
    assert change == pytest.approx(-3.0 * scale, rel=1e-12)


def _slow(solver: type[Any]) -> dict[str, float]:
    return {} if solver is Adagrad else {"beta2": float(np.nextafter(1, 0))}  # v stays where it is


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    st.sampled_from(ADAPTIVE),
    st.floats(0, 2),
)
@settings(max_examples=60)
def test_property_the_scale_is_positive_and_finite(gradients: list[float], solver: type[Any], start: float) -> None:
    scale, change = scale_of(solver(lr=0.1, steps=1, initial_accumulator=start, correction="joint"), gradients)
    assert 0 < scale < np.inf
    assert np.isfinite(change)


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_identity_one_client_makes_joint_the_plain_update(solver: type[Any], any_engine: Callable[[], Engine]) -> None:
    common = {"lr": 0.1, "batch_size": 5, "steps": 4}
    plain = moved(blob_task(1), solver(**common), 2)
    joint = moved(blob_task(1), solver(**common, correction="joint"), 2, any_engine(), aggregation=Joint())
    assert torch.allclose(joint, plain, rtol=0, atol=1e-12)


def test_identity_a_vast_accumulator_is_sgd(any_engine: Callable[[], Engine]) -> None:
    plain = moved(blob_task(3), SGD(lr=0.1, batch_size=5, effort=STEPS), 2)
    vast = Adagrad(lr=0.1 * UNSEEN**0.5, batch_size=5, effort=STEPS, initial_accumulator=UNSEEN)
    assert torch.allclose(moved(blob_task(3), vast, 2, any_engine()), plain, rtol=0, atol=1e-12)


def test_identity_local_correction_of_sgd_is_fednova_with_effective_work_of_one(
    any_engine: Callable[[], Engine],
) -> None:
    task = blob_task(3)
    start = task.layout.flatten(task.module)
    nova = start - moved(task, SGD(lr=0.1, batch_size=5, effort=STEPS), aggregation=FedNova())
    work = float((task.federation.sizes / task.federation.sizes.sum()) @ np.array([1, 3, 7]))  # τ_eff
    scale = UNSEEN**0.5  # C = τ_i/√v₀
    local = Adagrad(lr=0.1 * scale, batch_size=5, effort=STEPS, initial_accumulator=UNSEEN, correction="local")
    sent = start - moved(task, local, engine=any_engine(), server=ServerSGD(lr=1 / scale))
    assert torch.allclose(sent, nova / work, rtol=0, atol=1e-12)


def test_identity_joint_correction_of_sgd_is_fednova_with_the_harmonic_mean(any_engine: Callable[[], Engine]) -> None:
    task = blob_task(3)
    start, p = task.layout.flatten(task.module), task.federation.sizes / task.federation.sizes.sum()
    nova = start - moved(task, SGD(lr=0.1, batch_size=5, effort=STEPS), aggregation=FedNova())
    arithmetic, harmonic = p @ np.array([1, 3, 7]), 1 / (p @ (1 / np.array([1, 3, 7])))
    local = Adagrad(lr=0.1 * UNSEEN**0.5, batch_size=5, effort=STEPS, initial_accumulator=UNSEEN, correction="joint")
    sent = start - moved(task, local, engine=any_engine(), aggregation=Joint())
    assert torch.allclose(sent, nova * (harmonic / arithmetic), rtol=0, atol=1e-12)


def test_identity_equal_scales_make_joint_the_weighted_average(any_engine: Callable[[], Engine]) -> None:
    common = {"lr": 0.1 * UNSEEN**0.5, "batch_size": 5, "steps": 3, "initial_accumulator": UNSEEN}
    plain = moved(blob_task(3), Adagrad(**common), 2)
    joint = moved(blob_task(3), Adagrad(**common, correction="joint"), 2, any_engine(), aggregation=Joint())
    assert torch.allclose(joint, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_convergence_correction_takes_the_bias_of_adaptive_clients_out(solver: type[Any]) -> None:
    h, e, sizes = [1.0, 4.0, 0.5], [[1.0, 3.0], [8.0, -4.0], [-3.0, 0.5]], [1, 1, 2]
    p = np.array(sizes) / sum(sizes)
    optimum = (p[:, None] * np.array(e)).sum(0) / (p * h).sum()
    ways: list[tuple[str, Any]] = [("none", FedAvg()), ("local", FedAvg()), ("joint", Joint())]
    task = quadratic_task(h, e, sizes)  # one for all, so that they are answered together
    jobs = [
        (
            task,
            Plan(
                local=solver(lr=0.1, steps=5, batches="full", correction=correction),
                rounds=60,
                aggregation=aggregation,
                evaluate=NEVER,
            ),
            0,
        )
        for correction, aggregation in ways
    ]
    none, local, joint = (np.abs(model.numpy() - optimum).max() for model in together(jobs))
    assert none > 0.9
    assert local < 0.1
    assert joint < 0.1


@pytest.mark.parametrize("solver", ADAPTIVE)
@pytest.mark.parametrize("correction", ["none", "joint"])
def test_engine_every_way_gives_the_same_model(
    solver: type[Any], correction: str, any_engine: Callable[[], Engine]
) -> None:
    aggregation = Joint() if correction == "joint" else FedAvg()
    local = solver(lr=0.05, batch_size=5, steps=(1, 6), correction=correction, clip_norm=0.8, initial_accumulator=0.1)
    reference = moved(blob_task(5), local, 3, aggregation=aggregation)
    assert torch.allclose(
        moved(blob_task(5), local, 3, any_engine(), aggregation=aggregation), reference, rtol=0, atol=1e-11
    )
    assert not torch.allclose(reference, blob_task(5).layout.flatten(blob_task(5).module), atol=1e-3)


def test_contract_clipping_and_the_start_of_the_accumulator_do_something() -> None:
    plain = Adagrad(lr=0.05, batch_size=5, steps=2)
    models = [
        moved(blob_task(5), replace(plain, **more)) for more in ({}, {"clip_norm": 0.2}, {"initial_accumulator": 1})
    ]
    for one, other in itertools.combinations(models, 2):
        assert not torch.allclose(one, other, atol=1e-3)


def test_contract_moments_start_afresh_every_round() -> None:
    # F = −x: Adagrad's three steps move by η(1 + 1/√2 + 1/√3) up to τ_a, in every round
    task = quadratic_task([0.0], [[1.0]], [1])
    once = moved(task, Adagrad(lr=0.1, steps=3, batches="full"))
    assert float(moved(task, Adagrad(lr=0.1, steps=3, batches="full"), 4)) == pytest.approx(4 * float(once), abs=1e-12)
    assert float(once) == pytest.approx(0.1 * (1 + 2**-0.5 + 3**-0.5), rel=2e-3)


def objected(local: Adam, aggregation: Aggregation) -> str:
    return " ".join(found.message for found in problems(Plan(local=local, rounds=1, aggregation=aggregation)))


def test_error_corrections_that_meet_the_wrong_aggregation_are_refused() -> None:
    make: Callable[..., Any] = lambda correction: Adam(lr=0.1, steps=1, correction=correction)  # noqa: E731
    assert "needs Joint, which restores a common scale; got FedAvg" in objected(make("joint"), FedAvg())
    assert 'Set aggregation.use = "joint"' in objected(make("joint"), FedAvg())
    assert "SchemeC would divide again" in objected(make("local"), SchemeC())
    plan = Plan(local=make("joint"), rounds=1, aggregation=Joint(), server=FedExP())
    assert "FedExP uses the norms of the updates" in " ".join(found.message for found in problems(plan))
    for correction in ("none", "local", "joint"):
        assert "FedNova" in objected(make(correction), FedNova())
    for fine in ((make("none"), FedAvg()), (make("local"), FedAvg()), (make("joint"), Joint())):
        assert objected(*fine) == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adagrad(lr=0.1, steps=1, adaptivity=0), r"Adagrad needs adaptivity > 0; got 0\. Change local\.adap"),
        (lambda: Yogi(lr=0.1, steps=1, initial_accumulator=-1), r"Yogi needs initial_accumulator >= 0; got -1"),
        (lambda: Adam(lr=0.1, steps=1, beta1=1), r"Adam needs beta1 in \[0, 1\); got 1\. Change local\.beta1"),
        (lambda: Yogi(lr=0.1, steps=1, beta2=-0.1), r"Yogi needs beta2 in \[0, 1\); got -0\.1"),
        (lambda: Adam(lr=0.1, steps=1, initial_accumulator=1, bias_correction=True), r"= 0 with bias_correction"),
        (lambda: Adam(lr=0, steps=1), r"Adam needs lr > 0; got 0"),
    ],
)
def test_error_settings_that_cannot_be_name_the_setting(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
