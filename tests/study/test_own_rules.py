"""A rule is any class with its axis's method: one with only that method works in a study, on every axis."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import Generator
from torch import nn

from turnout import Fleet, Study
from turnout.array_types import Ids
from turnout.assignment.assigned import Assigned
from turnout.attacks.attack import drawn_attackers
from turnout.axes import AXES
from turnout.coordinator import Plan
from turnout.data import Digits, Federation
from turnout.errors import ConfigError
from turnout.fleet import Deadline
from turnout.learned import Learned
from turnout.local import SGD
from turnout.models import MLP, Softmax
from turnout.own_rules import completed
from turnout.protocols import Choice, Combined, Kept, Moved, SlotUpdate, Timing
from turnout.selection import Uniform
from turnout.streams import Streams

DATA = Digits(clients=6)


class OnlyBuildData:
    def build(self, streams: Streams) -> Federation:
        return DATA.build(streams)


class OnlyBuildModel:
    def build(self, example_shape: Any, num_outputs: Any, generator: Any) -> nn.Module:
        return nn.Linear(example_shape[0], num_outputs)


class OnlySplit:
    def split(self, labels: Ids, num_clients: int, rng: Generator) -> list[Ids]:
        return np.array_split(np.arange(len(labels)), num_clients)


class OnlyUp:
    def up(self, view: Any) -> Any:
        return view.population.everyone[view.round % 2 :]


class OnlyDone:
    def done(self, asked: Any, clients: Any, view: Any) -> Any:
        return np.maximum(asked // 2, 1)


class OnlyRun:
    def run(self, clients: Any, steps: Any, model_bytes: Any, view: Any) -> Any:
        return Timing(done=steps, late=np.zeros(len(clients), dtype=bool), round_seconds=float(len(clients)))


class OnlyMembers:
    def members(self, view: Any) -> Any:
        return np.arange(view.population.num_clients)[: 4 + view.round]


class OnlyKeep:
    def keep(self, pool: Any, view: Any, ask: Any) -> Any:
        return Kept(clients=pool[1:])


class OnlyChoose:
    def choose(self, pool: Any, view: Any, ask: Any) -> Any:
        return Choice.of(pool[:2])


class OnlyUpdate:
    def update(self, slot: SlotUpdate) -> None:
        slot.param.sub_(slot.grad * 0.1)


class OnlyTrain:
    def train(self, here: Any, fit: Any) -> Any:
        return Learned(sent=(yield fit))


class OnlyModels:
    def models(self, here: Any) -> Any:
        return {"personal": here.model.repeat(len(here.clients), 1)}


class OnlyUnits:
    def units(self, group: Any, size: Any, rate: Any, clients: Any, view: Any) -> Any:
        return (clients[:, None] + view.round) % size


class OnlyAssign:
    num_models = 2

    def assign(self, clients: Any, models: Any, view: Any, ask: Any) -> Any:
        return Assigned(model_of=clients % 2)


class OnlyFactor:
    def factor(self, round: Any) -> Any:
        return 1 / round


class OnlySteps:
    def steps(self, clients: Any, view: Any, per_epoch: Any) -> Any:
        return np.full(len(clients), 2, dtype=np.int64)


class OnlyCoefficients:
    def coefficients(self, facts: Any) -> Any:
        return facts.weights / facts.weights.sum()


class OnlyCombine:
    def combine(self, rows: Any, memory: Any, view: Any, ask: Any) -> Any:
        coefficients = np.full(len(rows.facts), 1 / len(rows.facts))
        return Combined(direction=rows.delta.mean(0), coefficients=coefficients)


class OnlyAdvance:
    def advance(self, model: Any, step: Any, memory: Any) -> Any:
        return Moved(model - step.direction)


class OnlyTakes:
    lr = 0.1

    def takes(self, view: Any) -> Any:
        return view.round == 2


class OnlyWeight:
    buffer_size, concurrency = 2, 3

    def weight(self, staleness: Any) -> Any:
        return np.ones(len(staleness))


class OnlyForge:
    def attackers(self, num_clients: Any, streams: Any) -> Any:
        return drawn_attackers(streams.seed, num_clients, 0.5)

    def forge(self, seen: Any) -> Any:
        return -seen.own


class OnlyRelabel:
    def attackers(self, num_clients: Any, streams: Any) -> Any:
        return drawn_attackers(streams.seed, num_clients, 0.5)

    def relabel(self, labels: Any, num_classes: Any) -> Any:
        return num_classes - 1 - labels


def solver(**changes: Any) -> SGD:
    return SGD(**({"lr": 0.1, "batch_size": 8, "epochs": 1} | changes))


MINIMAL = [
    ("data", {"data": OnlyBuildData()}),
    ("partition", {"data": {"use": "digits", "clients": 6, "partition": OnlySplit()}}),
    ("models", {"model": OnlyBuildModel()}),
    ("availability", {"fleet": Fleet(availability=OnlyUp())}),
    ("work", {"fleet": Fleet(work=OnlyDone())}),
    ("clock", {"fleet": Fleet(clock=OnlyRun())}),  # type: ignore[arg-type]
    ("clock", {"fleet": Fleet(clock=OnlyRun()), "asynchrony": OnlyWeight()}),  # type: ignore[arg-type]
    ("membership", {"fleet": Fleet(membership=OnlyMembers())}),
    ("filtering", {"filtering": OnlyKeep()}),
    ("selection", {"selection": OnlyChoose()}),
    ("local", {"local": OnlyUpdate()}),
    ("personal", {"personal": OnlyTrain()}),
    ("personal", {"personal": OnlyModels()}),
    ("width", {"width": OnlyUnits(), "model": MLP(hidden=(4,))}),
    ("assignment", {"assignment": OnlyAssign()}),
    ("schedule", {"local": solver(schedule=OnlyFactor())}),
    ("effort", {"local": solver(epochs=None, effort=OnlySteps())}),
    ("aggregation", {"aggregation": OnlyCoefficients()}),
    ("aggregation", {"aggregation": OnlyCombine()}),
    ("server", {"server": OnlyAdvance()}),
    ("assist", {"assist": OnlyTakes(), "data": {"use": "digits", "clients": 6, "server_samples": 20}}),
    ("asynchrony", {"asynchrony": OnlyWeight(), "fleet": Fleet(clock=Deadline())}),
    ("attack", {"attack": OnlyForge()}),
    ("attack", {"attack": OnlyRelabel()}),
]


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
@pytest.mark.parametrize(("axis", "changes"), MINIMAL, ids=lambda value: value if isinstance(value, str) else "")
def test_contract_a_class_with_only_the_axis_method_is_a_rule(axis: str, changes: dict[str, Any], engine: str) -> None:
    given: dict[str, Any] = {"data": DATA, "model": Softmax(), "local": solver(), "rounds": 3} | changes
    result = Study(**given).run(engine=engine, progress=False)
    losses = result.loaded.rounds["loss"].to_numpy()
    assert np.isfinite(losses).all()
    assert losses[-1] != losses[0]


def test_contract_every_axis_has_such_a_class() -> None:
    assert {axis for axis, _ in MINIMAL} == set(AXES)


def test_contract_a_rule_that_has_everything_stays_as_it_is() -> None:
    rule = Uniform(cohort_size=2)
    plan = Plan(local=solver(), rounds=1, selection=rule)
    assert plan.selection is rule
    assert completed("attack", None) is None


def test_contract_a_completed_rule_keeps_its_name_and_can_be_sent_to_another_process() -> None:
    plan = Plan(local=OnlyUpdate(), rounds=1, selection=OnlyChoose())  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(plan.local))
    assert type(again).__name__ == type(plan.local).__name__ == "OnlyUpdate"
    assert again.settings(np.arange(2), None)["lr"].tolist() == [1.0, 1.0]
    assert plan.selection.cohort_size is None


def test_identity_a_step_alone_is_sgd_with_one_full_batch() -> None:
    given: dict[str, Any] = {"data": DATA, "model": Softmax(), "rounds": 3}
    own = Study(**given, local=OnlyUpdate()).run(progress=False)  # type: ignore[arg-type]
    sgd = Study(**given, local=SGD(lr=0.1, epochs=1)).run(progress=False)
    torch.testing.assert_close(
        torch.tensor(own.loaded.rounds["loss"].to_numpy()), torch.tensor(sgd.loaded.rounds["loss"].to_numpy())
    )


class NoSizes:
    def weight(self, staleness: Any) -> Any:
        return np.ones(len(staleness))


class FewArguments:
    def choose(self, pool: Any) -> Any:
        return Choice.of(pool)


class SizeIsMethod:
    def cohort_size(self) -> Any:
        return 2

    def choose(self, pool: Any, view: Any, ask: Any) -> Any:
        return Choice.of(pool)


class NoFlag:
    knows_inclusion_prob = "yes"

    def choose(self, pool: Any, view: Any, ask: Any) -> Any:
        return Choice.of(pool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"asynchrony": NoSizes()}, r"NoSizes on asynchrony needs buffer_size and concurrency beside weight\. See "),
        ({"selection": FewArguments()}, r"FewArguments on selection: choose must take \(pool, view, ask\); it takes"),
        ({"selection": SizeIsMethod()}, r"cohort_size must be a value; got a method\. Write @property"),
        ({"selection": NoFlag()}, r'NoFlag needs knows_inclusion_prob to be true or false; got "yes"\.'),
        ({"selection": object()}, r"selection needs a rule with the method choose; got <object"),
    ],
)
def test_error_a_rule_that_lacks_something_is_told_what(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(local=solver(), rounds=1, **changes)
    with pytest.raises(ConfigError, match=message):
        Study(data=DATA, model=Softmax(), local=solver(), rounds=1, **changes).plan  # noqa: B018
