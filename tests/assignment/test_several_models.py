"""Several models at the server: what one model reduces to, relabelling, resume, engines, costs and refusals."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.saved_states import again
from tests.support.several_checks import (
    assert_clients_choose_on_their_training_samples,
    assert_equal_initial_models_are_noted_and_ties_go_to_the_first,
    assert_one_round_by_hand,
)
from tests.support.several_runs import (
    GROUPS,
    LOCAL,
    QUADRATICS,
    model_of,
    models_of,
    network,
    quadratics,
    several_run,
    starts,
)
from turnout.aggregation import MIFA, FedAvg, FedVARP, FLTrust, Krum, Median, NormClipping, SchemeB
from turnout.array_types import Floats
from turnout.assignment import Given, LowestLoss
from turnout.assignment.assigned import Assigned
from turnout.assignment.lowest_loss import lowest
from turnout.assist import Safari
from turnout.asynchrony import FedBuff
from turnout.coordinator import Cadence, Plan, State, Trust
from turnout.coordinator.compatibility import problems
from turnout.engine import Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.filtering import Greedy, UpdateNorm
from turnout.fleet import Bernoulli, Deadline, Fleet, Fraction
from turnout.fleet.membership import Random
from turnout.local import SGD
from turnout.local.effort import AdaComm
from turnout.personal import Ditto
from turnout.protocols import Choice, Moved, Population
from turnout.requests import Outcome, Record
from turnout.selection import DivFL, PowerOfChoice, Uniform
from turnout.server import FedAdam, FedAvgM, FedExP

BESIDE: dict[str, dict[str, Any]] = {
    "FedAvg": {"aggregation": FedAvg(weighting="mean")},
    "a cohort": {"selection": Uniform(cohort_size=3)},
    "FedAdam": {"server": FedAdam(lr=0.05), "selection": Uniform(cohort_size=3)},
    "FedExP": {"server": FedExP()},
    "a median": {"aggregation": Median()},
    "a deadline": {"fleet": Fleet(clock=Deadline(seconds_per_step=1.0, deadline_seconds=4.0))},
    "over-selection": {"fleet": Fleet(clock=Deadline(over_selection=1.5))},
    "clients that are away": {
        "fleet": Fleet(availability=Bernoulli(prob=0.4), work=Fraction(fraction=0.5, spread=0.5))
    },
    "a pull": {"local": SGD(lr=0.1, epochs=1, batch_size=4, prox_strength=0.3)},
    "norms": {"trust": Trust(max_norm=0.5), "aggregation": NormClipping(clip_norm=0.4)},
}
ENGINES: dict[str, Any] = {"sequential": Sequential(), "vectorised": Vectorised(deterministic=True)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("beside", BESIDE)
def test_identity_one_model_is_the_study_without_an_assignment(beside: str, engine: str) -> None:
    task = network()
    more: dict[str, Any] = {**BESIDE[beside], "engine": ENGINES[engine]}
    plain, plain_records = several_run(task, None, **more)
    one, records = several_run(task, LowestLoss(num_models=1), **more)

    assert torch.equal(plain.model, one.model)
    assert torch.equal(models_of(one)[0], one.model)
    for before, after in zip(plain_records, records, strict=True):
        assert before.costs == after.costs
        assert before.metrics.items() <= after.metrics.items()
        assert before.coefficients.tolist() == after.coefficients.tolist()
        assert before.outcomes.tolist() == after.outcomes.tolist()
        assert np.array_equal(before.losses, after.losses, equal_nan=True)
        assert (before.events, before.rejected) == (after.events, after.rejected)


@pytest.mark.parametrize("beside", BESIDE)
def test_identity_relabelling_models_relabels_results(beside: str) -> None:
    task, models, order = network(), starts(network(), 3), [2, 0, 1]
    one, records = several_run(task, LowestLoss(num_models=3), models=models, **BESIDE[beside])
    other, relabelled = several_run(task, LowestLoss(num_models=3), models=models[order], **BESIDE[beside])

    assert torch.equal(models_of(one)[order], models_of(other))
    for before, after in zip(records[1:], relabelled[1:], strict=True):
        asked = before.asked
        assert np.array_equal(np.array(order)[model_of(after)[asked]], model_of(before)[asked])
        assert after.metrics["own_loss"] == pytest.approx(before.metrics["own_loss"], rel=1e-12)


DRAWN = ("a cohort", "FedAdam", "over-selection")  # with some of the clients the draw, or the clock, is another


FIXED = {**BESIDE, "kept momentum": {"local": SGD(lr=0.1, epochs=1, momentum=0.9, momentum_reset="never")}}


@pytest.mark.parametrize("beside", [name for name in FIXED if name not in DRAWN])
def test_identity_given_models_train_as_separate_studies(beside: str) -> None:
    """A model's clients train as if they were asked alone, by a selection that knows them."""
    task, models, groups = network(), starts(network(), 2), (0, 1, 1, 0, 1, 0)
    both, _ = several_run(task, Given(models=groups), models=models, **FIXED[beside])

    class Members:
        cohort_size = None
        group = 0

        def choose(self, pool: Any, view: Any, ask: Any) -> Any:
            return Choice.of(np.array([client for client in pool if groups[client] == self.group], dtype=np.int64))

    for group in (0, 1):
        alone = Members()
        alone.group = group
        rule = Given(models=(0,) * 6)
        state, _ = several_run(task, rule, models=models[group : group + 1], **{**FIXED[beside], "selection": alone})
        assert torch.allclose(models_of(both)[group], state.model, rtol=0, atol=1e-12)


def test_closed_form_quadratics_in_two_groups_are_told_apart_at_once() -> None:
    task, local = quadratics(), SGD(lr=0.1, steps=3)
    models = torch.tensor([[0.5, 0.0], [-0.5, 0.0]], dtype=torch.float64)
    state, records = several_run(task, LowestLoss(num_models=2), models=models, rounds=200, local=local)

    assert all(np.array_equal(model_of(record), GROUPS) for record in records[1:])
    for group in (0, 1):
        weights = np.where(group == GROUPS, QUADRATICS.weights, 0.0)
        optimum = QUADRATICS.fedavg_fixed_point(weights / weights.sum(), 0.1, [3] * 4)
        assert np.allclose(models_of(state)[group].numpy(), optimum, rtol=0, atol=1e-12)


def test_golden_one_round_by_hand() -> None:
    assert_one_round_by_hand()


@pytest.mark.parametrize("server", [FedAdam(lr=0.1), FedAvgM(momentum=0.9), FedExP()])
def test_contract_a_model_that_nobody_trains_stays_bit_for_bit(server: Any) -> None:
    task, models = network(), starts(network(), 3)
    first, _ = several_run(task, Given(models=(0, 0, 0, 2, 2, 2)), models=models, rounds=2, server=server)

    class Switch:  # from round 3 on nobody trains model 2
        num_models = 3

        def assign(self, clients: Any, models: Any, view: Any, ask: Any) -> Assigned:
            listed = (
                np.array((0, 0, 0, 2, 2, 2))[clients] if view.round <= 2 else np.zeros(len(clients), dtype=np.int64)
            )
            return Assigned(model_of=listed)

    final, _ = several_run(task, Switch(), models=models, rounds=5, server=server)

    assert torch.equal(models_of(final)[1], models[1])
    assert torch.equal(models_of(final)[2], models_of(first)[2])
    assert not torch.equal(models_of(final)[0], models_of(first)[0])


def test_golden_ties_go_to_the_smallest_index_and_nan_is_never_lowest() -> None:
    losses = np.array([[1.0, np.nan, 2.0, np.nan], [1.0, 5.0, 1.0, np.nan], [0.5, 5.0, 1.0, np.nan]])
    assert lowest(losses).tolist() == [2, 1, 1, 0]


def test_golden_clients_choose_on_their_training_samples() -> None:
    assert_clients_choose_on_their_training_samples()


def test_equal_initial_models_are_noted_and_ties_go_to_the_first() -> None:
    assert_equal_initial_models_are_noted_and_ties_go_to_the_first()


def test_identity_of_two_equal_models_one_stays_unused_while_training_helps_everyone() -> None:
    task, models = quadratics(), torch.tensor([[0.0, -9.0]] * 2, dtype=torch.float64)
    state, records = several_run(task, LowestLoss(num_models=2), models=models, rounds=50, local=SGD(lr=0.1, steps=1))

    assert all((model_of(record) == 0).all() for record in records[1:])
    assert torch.equal(models_of(state)[1], models[1])


@pytest.mark.parametrize("server", [FedAdam(lr=0.05), FedExP()])
def test_contract_saved_half_way_and_restored_ends_the_same(server: Any) -> None:
    task, rule = network(), LowestLoss(num_models=3, batch_size=2)
    more: dict[str, Any] = {"server": server, "selection": Uniform(cohort_size=4)}
    whole, whole_records = several_run(task, rule, rounds=6, **more)
    half, _ = several_run(task, rule, rounds=3, **more)
    final, records = several_run(task, rule, rounds=6, state=again(half), **more)

    assert torch.equal(models_of(final), models_of(whole))
    assert records[-1].metrics == whole_records[-1].metrics
    assert np.array_equal(model_of(records[-1]), model_of(whole_records[-1]))


@pytest.mark.parametrize("beside", BESIDE)
def test_engine_both_agree(beside: str) -> None:
    task = network()
    one, first = several_run(task, LowestLoss(num_models=3), **BESIDE[beside])
    two, second = several_run(task, LowestLoss(num_models=3), engine=Vectorised(deterministic=True), **BESIDE[beside])

    assert torch.allclose(models_of(one), models_of(two), rtol=0, atol=1e-12)
    assert np.array_equal(model_of(first[-1]), model_of(second[-1]))
    assert len(np.unique(np.concatenate([model_of(record)[record.asked] for record in first[1:]]))) > 1


def test_costs_all_models_go_down_and_one_update_comes_up() -> None:
    task, size = network(), network().layout.size * 8
    more: dict[str, Any] = {"selection": Uniform(cohort_size=4), "rounds": 1}
    _, plain = several_run(task, None, **more)
    _, listed = several_run(task, Given(models=(0, 1, 0, 1, 0, 1)), **more)
    _, looked = several_run(task, LowestLoss(num_models=3), **more)
    asked = looked[1].asked

    assert plain[1].costs == listed[1].costs
    assert looked[1].costs.bytes_down == 3 * 4 * size
    assert looked[1].costs.bytes_up == 4 * size
    assert looked[1].costs.probe_evaluations == 3 * task.federation.sizes[asked].sum()


def test_every_job_has_one_outcome_and_bad_updates_are_left_out() -> None:
    task = network()
    records = several_run(task, LowestLoss(num_models=3), trust=Trust(max_norm=0.3), rounds=2)[1]
    ended = records[1].outcomes

    assert len(ended) == 6
    assert 0 < (ended == Outcome.REJECTED).sum() < 6
    assert set(records[1].rejected) == set(records[1].asked[ended == Outcome.REJECTED].tolist())
    accepted = np.isin(records[1].asked, records[1].answered)
    for model in np.unique(model_of(records[1])[records[1].answered]):
        here = accepted & (model_of(records[1]) == model)
        assert records[1].coefficients[here].sum() == pytest.approx(1.0)


def test_a_step_that_is_not_finite_is_dropped_for_its_own_model_alone() -> None:
    task = network()

    class Breaks:
        def advance(self, model: Any, step: Any, memory: Any) -> Any:
            moved = model - step.direction
            return Moved(moved * (torch.inf if 3 in step.facts.clients else 1.0))

    models = starts(task, 2)
    state, records = several_run(task, Given(models=(0, 0, 0, 1, 1, 1)), models=models, rounds=2, server=Breaks())
    assert torch.equal(models_of(state)[1], models[1])
    assert not torch.equal(models_of(state)[0], models[0])
    assert records[1].coefficients[3:].tolist() == [0.0, 0.0, 0.0]
    assert any(event.startswith("model 1: the server step was dropped") for event in records[1].events)


def test_metrics_are_those_of_each_clients_own_model() -> None:
    task, groups = network(), (0, 1, 0, 1, 0, 1)
    state, records = several_run(task, Given(models=groups), evaluate=Cadence(clients_every=1))
    shared = [
        several_run(task, None, rounds=1, local=SGD(lr=1e-300, steps=1), models=None, state=_at(task, row))[1][-1]
        for row in models_of(state)
    ]
    own = np.array([_client_loss(shared[group])[client] for client, group in enumerate(groups)])
    assert task.federation.holdout is not None
    sizes, weights = task.federation.holdout.sizes, task.federation.weights
    odd = np.array(groups) == 1

    assert np.allclose(_client_loss(records[-1]), own, rtol=0, atol=1e-12)
    assert records[-1].metrics["own_loss"] == pytest.approx((own * sizes).sum() / sizes.sum(), abs=1e-12)
    both = weights[~odd].sum() * shared[0].metrics["loss"] + weights[odd].sum() * shared[1].metrics["loss"]
    assert records[-1].metrics["loss"] == pytest.approx(both, abs=1e-12)


def _client_loss(record: Record) -> Floats:
    assert record.client_loss is not None
    return record.client_loss


def _at(task: Any, model: torch.Tensor) -> State:
    return State.start(model.clone(), Population.of(task.federation.sizes))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "filters that train": ({"filtering": UpdateNorm()}, "before it is known which model each trains"),
    "FilFL": ({"filtering": Greedy()}, "before it is known which model each trains"),
    "losses at one model": ({"selection": PowerOfChoice(cohort_size=2, pool_size=4)}, "losses, gradients or updates"),
    "gradients at one model": ({"selection": DivFL(cohort_size=2)}, "losses, gradients or updates"),
    "FedVARP": ({"aggregation": FedVARP()}, "stores updates of one model"),
    "MIFA": ({"aggregation": MIFA()}, "stores updates of one model"),
    "FLTrust": ({"aggregation": FLTrust()}, "stores updates of one model"),
    "Krum": ({"aggregation": Krum(num_attackers=1)}, "how many clients train each model is not known"),
    "Horvitz–Thompson": ({"aggregation": FedAvg(weighting="ht")}, "sum to one over all clients"),
    "a scheme": ({"aggregation": SchemeB()}, "sum to one over all clients"),
    "SCAFFOLD": (
        {"local": SGD(lr=0.1, steps=1, control="average")},
        "has control variates, which are gradients of one model",
    ),
    "AdaComm": ({"local": SGD(lr=0.1, effort=AdaComm(start=3, every=1))}, "follows the loss of one model"),
    "Ditto": ({"personal": Ditto()}, "beside one shared model"),
    "FedBuff": (
        {"asynchrony": FedBuff(buffer_size=2, concurrency=3), "fleet": Fleet(clock=Deadline())},
        "several rounds in one buffer",
    ),
    "server rounds": ({"assist": Safari(lr=0.1)}, "has the server train one model"),
    "membership": ({"fleet": Fleet(membership=Random())}, "each model has its own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_error_what_is_not_defined_is_refused_with_the_reason(name: str) -> None:
    more, reason = REFUSED[name]
    local = more.get("local", LOCAL)
    plan = Plan(rounds=1, assignment=LowestLoss(num_models=2), **{"local": local, **more})
    said = [found.message for found in problems(plan) if found.message.startswith("LowestLoss on assignment")]

    assert any(reason in text for text in said), said
    assert all("Set " in text or "Leave " in text for text in said)
    assert not any("assignment" in found.message for found in problems(Plan(rounds=1, **{"local": local, **more})))


def test_error_a_rule_of_ones_own_that_asks_at_the_one_model() -> None:
    class Asks:
        def choose(self, pool: Any, view: Any, ask: Any) -> Any:
            yield ask.losses(pool)

    with pytest.raises(ConfigError, match="asks clients about the round's model, and LowestLoss has 2 models"):
        several_run(network(), LowestLoss(num_models=2), selection=Asks())


def test_error_an_index_beyond_the_models() -> None:
    class Beyond:
        num_models = 2

        def assign(self, clients: Any, models: Any, view: Any, ask: Any) -> Assigned:
            return Assigned(model_of=clients)

    with pytest.raises(ConfigError, match="must return one model index from 0 to 1 for each client"):
        several_run(network(), Beyond())


def test_error_a_list_of_another_length() -> None:
    with pytest.raises(ConfigError, match="Given needs one model index for each client; got 2 for 6 clients"):
        several_run(network(), Given(models=(0, 1)))
