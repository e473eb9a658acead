"""What holds for every personal rule: exact resume, other rules beside it, rules of one's own, and refusals."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.personal_runs import kept, network, personal_run, quadratics
from turnout.aggregation import FedVARP, Median
from turnout.asynchrony import FedBuff
from turnout.catalogue import catalogue
from turnout.coordinator.saving import restored, saved, tables_of
from turnout.errors import ConfigError
from turnout.filtering import Greedy
from turnout.fleet import Bernoulli, Deadline, Fleet
from turnout.learned import Learned
from turnout.local import SGD
from turnout.local import Moreau as MoreauSolver
from turnout.personal import APFL, Codistil, Ditto, FineTune, Layers, Moreau
from turnout.personal.at_clients import AtClients
from turnout.requests import Fit, Steps, Trained
from turnout.selection import PowerOfChoice, Uniform
from turnout.server import FedAdam

LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)
INNER = MoreauSolver(lr=0.05, epochs=1, batch_size=4, strength=2.0, inner_steps=2, inner_lr=0.1)
RULES: dict[str, tuple[Any, Any]] = {
    "ditto": (Ditto(strength=0.5), LOCAL),
    "apfl": (APFL(mixing=0.3, mixing_lr=0.1), LOCAL),
    "fine-tune": (FineTune(steps=2), LOCAL),
    "layers": (Layers(keep=("2",), order="kept-first", kept_steps=2), LOCAL),
    "moreau": (Moreau(), INNER),
    "codistil": (Codistil(samples=5), LOCAL),
}


def test_contract_every_rule_of_the_axis_is_tested_here() -> None:
    assert set(RULES) == set(catalogue("personal"))


@pytest.mark.parametrize("name", RULES)
def test_contract_saved_half_way_and_restored_ends_the_same(name: str) -> None:
    rule, local = RULES[name]
    task, more = network(), {"selection": Uniform(cohort_size=3), "local": local}
    whole, whole_records = personal_run(task, rule, rounds=6, **more)
    half, _ = personal_run(task, rule, rounds=3, **more)
    tensors, rest = saved(half)
    state = restored({k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(rest)), half)
    for table_name, table in tables_of(half).items():
        ids = np.flatnonzero(table.seen)
        tables_of(state)[table_name].put(ids, table.take(ids))
    final, records = personal_run(task, rule, rounds=6, state=state, **more)

    assert torch.equal(final.model, whole.model)
    assert records[-1].personal.keys() == whole_records[-1].personal.keys()
    for measure, values in whole_records[-1].personal.items():
        assert np.array_equal(values, records[-1].personal[measure])
    for table_name, table in tables_of(whole).items():
        assert torch.equal(table.take(np.arange(6)), tables_of(final)[table_name].take(np.arange(6)))


BESIDE: dict[str, dict[str, Any]] = {
    "power-of-choice": {"selection": PowerOfChoice(cohort_size=2, pool_size=4)},
    "a median": {"aggregation": Median()},
    "FedVARP": {"aggregation": FedVARP(), "selection": Uniform(cohort_size=3)},
    "FedAdam": {"server": FedAdam(lr=0.05)},
    "clients that are away": {"fleet": Fleet(availability=Bernoulli(prob=0.6))},
    "a deadline": {"fleet": Fleet(clock=Deadline(deadline_seconds=30.0))},
    "a filter that trains": {"filtering": Greedy(on="client"), "selection": Uniform(cohort_size=2)},
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", ["ditto", "layers"])
def test_contract_it_goes_with_the_rules_of_other_axes(name: str, beside: str) -> None:
    rule, local = RULES[name]
    task = network()
    final, records = personal_run(task, rule, local=local, rounds=3, **BESIDE[beside])

    assert torch.isfinite(final.model).all()
    assert np.isfinite(records[-1].personal["personal loss"]).all()
    answered = np.unique(np.concatenate([record.answered for record in records[1:]]))
    table = tables_of(final)[f"world.store personal {'model' if name == 'ditto' else 'layers'}"]
    assert np.flatnonzero(table.seen).tolist() == answered.tolist()


class OnlyTrains:
    """A rule of one's own with one method: each client keeps the model it ended with."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        own: Trained = yield here.training(here.solver(0.5), here.steps(1), here.rows())
        assert own.ends is not None
        return Learned(sent=(yield fit), rows={"model": own.ends})


class OnlyModels:
    """A rule of one's own with one method: each client uses half of the shared model."""

    def models(self, here: AtClients) -> dict[str, torch.Tensor]:
        return {"personal": here.model.repeat(len(here.clients), 1) / 2}


def test_own_rule_with_only_train_keeps_rows() -> None:
    state, _ = personal_run(quadratics(), OnlyTrains(), rounds=1)

    assert kept(state).tolist() == [[0.5, 0.0], [0.0, 1.0], [-0.5, 0.5]]  # one step of rate 0.5 from 0 along e_i


def test_own_rule_with_only_models_is_measured() -> None:
    state, records = personal_run(quadratics(), OnlyModels(), rounds=2)
    x = state.model.numpy() / 2

    assert records[-1].personal["personal loss"][1] == pytest.approx(0.5 * (x @ x) - 2.0 * x[1], abs=1e-15)


def test_bad_input_a_server_that_does_not_wait() -> None:
    more: dict[str, Any] = {"asynchrony": FedBuff(buffer_size=2, concurrency=3), "fleet": Fleet(clock=Deadline())}
    with pytest.raises(ConfigError, match="what clients keep is written when a round ends"):
        personal_run(network(), Ditto(), local=LOCAL, **more)
