"""Attacks in runs: what is forged, what is on record, and what a robust rule makes of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.attack_scenes import ATTACKS, FORGERS
from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedVARP, FLTrust, Krum, Median, MultiKrum, NormClipping, TrimmedMean
from turnout.array_types import Ids
from turnout.asynchrony import FedBuff
from turnout.attacks import Gaussian, InnerProduct, LabelFlip, ModelReplacement, NaN, ScaledUpdate, SignFlip
from turnout.attacks.attack import Attack
from turnout.coordinator import Cadence, Plan, check
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.filtering import Greedy
from turnout.fleet import Bernoulli, Deadline, Fleet
from turnout.local import SGD
from turnout.protocols import Population, View
from turnout.requests import Fit, Trained
from turnout.selection import Uniform
from turnout.server import FedExP
from turnout.streams import Streams
from turnout.world.simulation.adversaries import forged

LOCAL = SGD(lr=0.1, batch_size=4, epochs=1)
QUIET = Cadence(every=10**9)
every_attack = pytest.mark.parametrize("rule", ATTACKS.values(), ids=ATTACKS.keys())
every_forger = pytest.mark.parametrize("rule", FORGERS.values(), ids=FORGERS.keys())


def plan(attack: Attack | None, **more: Any) -> Plan:
    chosen = {"local": LOCAL, "rounds": 4, "selection": Uniform(cohort_size=5), "evaluate": QUIET, **more}
    return Plan(**chosen, attack=attack)


@every_attack
def test_identity_no_attackers_is_no_attack_bit_for_bit(rule: type[Any], any_engine: Callable[[], Engine]) -> None:
    task = blob_task(9)
    honest, before = run(task, plan(None), engine=any_engine())
    final, after = run(task, plan(rule(fraction=0.0)), engine=any_engine())
    assert torch.equal(final.model, honest.model)
    for one, two in zip(before, after, strict=True):
        assert two.metrics == {**one.metrics, "attackers": 0.0}
        assert np.array_equal(one.losses, two.losses, equal_nan=True)
        assert one.costs == two.costs


@every_forger
def test_contract_an_attack_is_paired_nobody_else_draws_anything_new(rule: type[Any]) -> None:
    task = blob_task(9)
    _, before = run(task, plan(None, rounds=1))
    _, after = run(task, plan(rule(fraction=0.4), rounds=1))
    assert np.array_equal(before[1].asked, after[1].asked)
    assert np.array_equal(before[1].losses, after[1].losses) or rule is NaN  # the model was the same for all


@every_forger
def test_engine_every_engine_is_attacked_alike(rule: type[Any], any_engine: Callable[[], Engine]) -> None:
    task = blob_task(9)
    expected, _ = run(task, plan(rule(fraction=0.4)))
    final, _ = run(task, plan(rule(fraction=0.4)), engine=any_engine())
    assert torch.allclose(final.model, expected.model, rtol=1e-9, atol=1e-9)


def test_golden_the_mean_of_two_clients_one_of_whom_turns_its_change() -> None:
    # minima 1 and 4, rate ½, one full step from 0: Δ = −½ and −2; the second sends +6
    task = quadratic_task([1.0, 1.0], [[1.0], [4.0]], [1, 1])
    local = SGD(lr=0.5, steps=1, batches="full")
    final, records = run(task, Plan(local=local, rounds=1, attack=SignFlip(clients=(1,), scale=3.0)))
    assert final.model.tolist() == [-(-0.5 + 6.0) / 2]
    assert records[1].metrics["attackers"] == 1.0
    assert records[0].events == ("SignFlip: client 1 attacks",)


def test_golden_rows_norms_and_verdicts_of_attackers_are_replaced_and_the_answer_is_not() -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    answer = Trained(
        clients=np.array([2, 4, 7]),
        steps=np.ones(3, dtype=np.int64),
        loss=np.ones(3),
        finite=np.ones(3, dtype=bool),
        delta=rows,
        square_norms=np.array([5.0, 25.0, 61.0]),
    )
    request = Fit(
        round=1,
        streams=Streams(0),
        model=torch.zeros(2, dtype=torch.float64),
        buffers=None,
        clients=answer.clients,
        steps=answer.steps,
        local=LOCAL,
        settings={},
        coefficients=None,
        buffer_weights=np.ones(3) / 3,
    )
    hostile = np.array([False, True, False])
    turned = forged(SignFlip(fraction=0.3, scale=2.0).forge, request, answer, hostile)
    assert present(turned.delta).tolist() == [[1.0, 2.0], [-6.0, -8.0], [5.0, 6.0]]
    assert present(turned.square_norms).tolist() == pytest.approx([5.0, 100.0, 61.0])
    assert turned.finite.all()
    spoilt = forged(NaN(fraction=0.3).forge, request, answer, hostile)
    assert spoilt.finite.tolist() == [True, False, True]
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert answer.finite.all()
    assert present(answer.square_norms).tolist() == [5.0, 25.0, 61.0]


def test_identity_answers_that_are_no_numbers_are_answers_that_never_came() -> None:
    task = blob_task(9)
    final, records = run(task, plan(NaN(clients=(0, 3, 5)), selection=Uniform()))
    others, _ = run(task, plan(None, selection=Uniform(), fleet=Fleet(availability=Only([1, 2, 4, 6, 7, 8]))))
    assert torch.allclose(final.model, others.model, rtol=0, atol=1e-12)
    assert all(set(r.rejected) == {0, 3, 5} for r in records[1:])
    assert all(r.metrics["attackers"] == 3.0 for r in records[1:])


class Only:
    """These clients are up, and nobody else ever."""

    def __init__(self, clients: list[int]) -> None:
        self.clients = np.array(clients)

    def up(self, view: View) -> Ids:
        return self.clients


def test_contract_the_record_counts_attackers_among_those_who_answered() -> None:
    task = blob_task(9)
    attack = ScaledUpdate(fraction=0.4)
    hostile = attack.attackers(9, Streams(0))
    _, records = run(task, plan(attack, fleet=Fleet(availability=Bernoulli(prob=0.5)), rounds=8))
    counts = [r.metrics["attackers"] for r in records]
    assert counts == [float(hostile[r.answered].sum()) for r in records]
    assert len(set(counts)) > 1
    assert records[0].events[0] == f"ScaledUpdate: 4 clients attack: {', '.join(map(str, np.flatnonzero(hostile)))}"


def test_contract_every_way_of_asking_is_attacked() -> None:
    # controls, memories, norms for the server, the server's own step, and a server that does not wait
    task = blob_task(9)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    clock = Fleet(clock=Deadline(seconds_per_step=1.0))
    ways: dict[str, Any] = {
        "controls": {"local": replace(LOCAL, control="average")},
        "memory": {"aggregation": FedVARP()},
        "norms": {"server": FedExP()},
        "trust": {"aggregation": FLTrust()},
        "buffer": {"asynchrony": FedBuff(buffer_size=3, concurrency=5), "fleet": clock},
    }
    for name, way in ways.items():
        honest, _ = run(task, plan(None, **way))
        final, records = run(task, plan(SignFlip(fraction=0.5, scale=5.0), **way))
        assert sum(r.metrics["attackers"] for r in records) > 0, name
        assert torch.isfinite(final.model).all(), name
        assert (final.model - honest.model).norm() > 1e-3, name


def test_contract_a_filter_that_trains_first_sees_what_is_sent() -> None:
    task, attack = blob_task(9), SignFlip(fraction=0.5, scale=5.0)
    task = replace(task, federation=replace(task.federation, server=task.federation.test))
    hostile = attack.attackers(9, Streams(0))
    _, before = run(task, plan(None, filtering=Greedy()))
    _, after = run(task, plan(attack, filtering=Greedy()))
    asked = [sum(hostile[r.asked].sum() for r in records) for records in (before, after)]
    assert asked[0] > asked[1] == 0


def test_golden_controls_are_refreshed_with_what_was_sent() -> None:
    # one step, so c_i⁺ is the change sent over the rate: −(−Δ)/η for the attacker
    task = quadratic_task([1.0, 1.0], [[1.0], [4.0]], [1, 1])
    local = SGD(lr=0.5, steps=1, batches="full", control="average")
    honest, _ = run(task, Plan(local=local, rounds=1))
    final, _ = run(task, Plan(local=local, rounds=1, attack=SignFlip(clients=(1,))))
    assert honest.world["store control"].take(np.array([0, 1])).tolist() == [[-1.0], [-4.0]]
    assert final.world["store control"].take(np.array([0, 1])).tolist() == [[-1.0], [4.0]]
    assert final.local["shared"].tolist() == [1.5]


def test_error_a_client_that_does_not_exist_is_refused_at_check() -> None:
    population = Population.of(np.ones(4, dtype=np.int64))
    with pytest.raises(ConfigError, match=r"SignFlip needs clients below 4, the number of clients; got 4\. Change"):
        check(Plan(local=LOCAL, rounds=1, attack=SignFlip(clients=(1, 4))), population)


# twenty clients around (1, −2); the honest ones are those the attackers leave
MINIMA = np.array([1.0, -2.0]) + 0.1 * np.random.default_rng(0).normal(size=(20, 2))
ROBUST = {
    "median": Median(),
    "trimmed-mean": TrimmedMean(fraction=0.3),
    "krum": Krum(num_attackers=5),
    "multi-krum": MultiKrum(num_attackers=5),
}
HARD = {"sign-flip": SignFlip(fraction=0.25, scale=5.0), "inner-product": InnerProduct(fraction=0.25, scale=5.0)}


def distance(aggregation: Any, attack: Attack) -> Any:
    """How far from the honest optimum a run ends."""
    task = quadratic_task([1.0] * 20, MINIMA.tolist(), [1] * 20)
    local = SGD(lr=0.2, steps=1, batches="full")
    final, _ = run(task, Plan(local=local, rounds=60, aggregation=aggregation, attack=attack, evaluate=QUIET))
    honest = ~attack.attackers(20, Streams(0))
    return float(np.linalg.norm(final.model.numpy() - MINIMA[honest].mean(0)))


@pytest.mark.parametrize("attack", HARD.values(), ids=HARD.keys())
def test_convergence_a_mean_is_driven_away_and_robust_rules_stay_near_the_honest_optimum(attack: Attack) -> None:
    # of the mean, 15 parts pull in and 5·5 push out: it leaves for good
    assert distance(FedAvg(), attack) > 5.0
    assert distance(NormClipping(), attack) < 2.5
    for name, rule in ROBUST.items():
        assert distance(rule, attack) < 0.2, name


def test_convergence_a_turned_quarter_with_small_scale_only_slows_a_mean_down() -> None:
    # 15 − 5 of 20 parts pull in: slower, and to the optimum of what is left
    assert distance(FedAvg(), InnerProduct(fraction=0.25, scale=1.0)) < 0.05


def test_convergence_the_model_is_replaced_when_the_others_have_settled() -> None:
    task = quadratic_task([1.0] * 20, MINIMA.tolist(), [1] * 20)
    local, attack = SGD(lr=0.2, steps=1, batches="full"), ModelReplacement(clients=(7,), target="zero")
    settled, _ = run(task, Plan(local=local, rounds=60, evaluate=QUIET))
    assert settled.model.norm() > 2.0
    module = replace(task, module=type(task.module)(2))
    with torch.no_grad():
        module.module.point.copy_(settled.model)  # type: ignore[operator]
    final, _ = run(module, Plan(local=local, rounds=1, attack=attack, evaluate=QUIET))
    assert final.model.norm() < 0.05


def test_golden_noise_moves_the_mean_by_its_share() -> None:
    task = quadratic_task([1.0] * 2, [[1.0, 2.0], [3.0, 4.0]], [1, 1])
    local = SGD(lr=1.0, steps=1, batches="full")
    final, _ = run(task, Plan(local=local, rounds=1, attack=Gaussian(clients=(0,), std=2.0)))
    noise = Streams(0).generator("attack", 1, 0).standard_normal(2)
    assert final.model.tolist() == pytest.approx((0.5 * np.array([3.0, 4.0]) - noise).tolist())


def test_contract_label_flip_sends_what_it_learned() -> None:
    task = blob_task(9)
    honest, _ = run(task, plan(None))
    final, records = run(task, plan(LabelFlip(fraction=0.4)))  # on labels that nobody changed: assembly does that
    assert torch.equal(final.model, honest.model)
    assert sum(r.metrics["attackers"] for r in records) > 0
