"""Several models, weights by losses, clients that leave: with each rule of the other axes they run, or say why not."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.several_checks import STAGGERED, drifting
from tests.support.several_runs import network, starts
from tests.support.tasks import held_out_test_set, train_of
from turnout.aggregation import QFFL, Agnostic, Appeal, ClusterFedVARP, FedAvg, Private, Tilted
from turnout.assignment import Concept, Drift, Given, LowestLoss
from turnout.assist import Safari
from turnout.asynchrony import FedBuff
from turnout.axes import AXES as ALL_AXES
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan, State, Turnover
from turnout.coordinator.compatibility import problems_with
from turnout.engine import Task, Vectorised
from turnout.fleet import Deadline, Fleet
from turnout.fleet.availability import Appealed, Cyclic, Never, Resampled
from turnout.fleet.membership import Random, Scheduled
from turnout.local import SGD, Adagrad, Adam, Meta, Moreau, Yogi
from turnout.local.effort import AdaComm
from turnout.models.slices import Slices
from turnout.personal import Layers
from turnout.personal import Moreau as InnerSolution
from turnout.protocols import Population
from turnout.selection import AFL, DivFL, LowLoss, Oort, Optimal, Poisson, PowerOfChoice, Weighted
from turnout.streams import Streams
from turnout.study.driver import Run, drive

LOCAL = SGD(lr=0.1, steps=2, batch_size=4)
ROUNDS = 2
LEAVING = Appealed(warmup_rounds=0, loyal=0.5, epochs=1)
RULES: dict[str, dict[str, Any]] = {  # the rules whose company is tried
    "lowest-loss": {"assignment": LowestLoss(num_models=2)},
    "given": {"assignment": Given(shares=(1.0, 1.0))},
    "drift": {"assignment": Drift(num_models=3, threshold=0.2)},
    "concept": {"assignment": Concept(num_models=2)},
    "agnostic": {"aggregation": Agnostic(rate=0.5)},
    "appeal": {"aggregation": Appeal(epochs=1)},
    "q-ffl": {"aggregation": QFFL(power=2.0)},
    "tilted": {"aggregation": Tilted(tilt=1.5)},
    "appealed": {"fleet": Fleet(availability=LEAVING)},
}
ON_DRIFTING_DATA = ("drift", "concept")
FROM_FILES = ("journal", "recorded")  # fleets that were recorded: they decide as the rules that were recorded did
ELSEWHERE = ("architectures", "ensemble-transfer", "codistil")  # need a family of models or a public set
CLOCK = Fleet(clock=Deadline())
RATES = (1.0, 0.5)
NEEDED: dict[tuple[str, str], dict[str, Any]] = {  # rules without defaults, or that need others beside them
    ("selection", "afl"): {"selection": AFL(cohort_size=2)},
    ("selection", "divfl"): {"selection": DivFL(cohort_size=2)},
    ("selection", "low-loss"): {"selection": LowLoss(cohort_size=2, pool_size=3)},
    ("selection", "oort"): {"selection": Oort(cohort_size=2), "fleet": CLOCK},
    ("selection", "optimal"): {
        "selection": Optimal(cohort_size=2, pool_size=3),
        "aggregation": FedAvg(weighting="ht"),
    },
    ("selection", "poisson"): {"selection": Poisson(prob=0.7)},
    ("selection", "power-of-choice"): {"selection": PowerOfChoice(cohort_size=2, pool_size=3)},
    ("selection", "weighted"): {"selection": Weighted(cohort_size=2)},
    ("aggregation", "cluster-fedvarp"): {"aggregation": ClusterFedVARP(num_clusters=2)},
    ("aggregation", "private"): {"aggregation": Private(clip_norm=1.0, noise_multiplier=0.1, cohort_size=6)},
    ("aggregation", "joint"): {
        "aggregation": catalogue("aggregation")["joint"](),
        "local": Adam(lr=0.05, steps=2, correction="joint"),
    },
    ("availability", "appealed"): {"fleet": Fleet(availability=LEAVING)},
    ("availability", "cyclic"): {"fleet": Fleet(availability=Cyclic(groups=2))},
    ("availability", "never"): {"fleet": Fleet(availability=Never(count=1))},
    ("availability", "resampled"): {"fleet": Fleet(availability=Resampled(size=3))},
    ("membership", "random"): {"fleet": Fleet(membership=Random(present=0.8))},
    ("membership", "scheduled"): {"fleet": Fleet(membership=Scheduled(departures={0: 2}))},
    ("assist", "safari"): {"assist": Safari(lr=0.1)},
    ("asynchrony", "fedbuff"): {"asynchrony": FedBuff(buffer_size=2, concurrency=3), "fleet": CLOCK},
    ("personal", "layers"): {"personal": Layers(keep=("*.bias",))},
    ("personal", "moreau"): {"personal": InnerSolution(), "local": Moreau(lr=0.05, steps=2, strength=2.0)},
    **{
        ("width", name): {"width": rule(rates=RATES)}
        for name, rule in catalogue("width").items()
        if name not in ELSEWHERE
    },
    **{("attack", name): {"attack": rule(fraction=0.3)} for name, rule in catalogue("attack").items()},
    ("local", "adagrad"): {"local": Adagrad(lr=0.05, steps=2)},
    ("local", "adam"): {"local": Adam(lr=0.05, steps=2, correction="local")},
    ("local", "meta"): {"local": Meta(lr=0.05, steps=1, inner_lr=0.05)},
    ("local", "moreau"): {"local": Moreau(lr=0.05, steps=1, strength=2.0)},
    ("local", "sgd"): {"local": SGD(lr=0.05, steps=2, momentum=0.5, momentum_reset="never")},
    ("local", "yogi"): {"local": Yogi(lr=0.05, steps=2)},
}
VARIANTS: dict[tuple[str, str], dict[str, Any]] = {  # settings that change what goes together
    ("local", "adam, plain"): {"local": Adam(lr=0.05, steps=2)},
    ("membership", "random, vanilla"): {
        "fleet": Fleet(membership=Random(present=0.8)),
        "turnover": Turnover(reboot="vanilla"),
    },
    ("aggregation", "appeal, a number"): {"aggregation": Appeal(requirement=0.8)},
    ("local", "scaffold"): {"local": SGD(lr=0.05, steps=2, control="average")},
    ("local", "adacomm"): {"local": SGD(lr=0.05, effort=AdaComm(start=2, every=1))},
    ("selection", "power-of-choice, last"): {"selection": PowerOfChoice(cohort_size=2, pool_size=3, estimate="last")},
    ("aggregation", "fedavg, ht"): {"aggregation": FedAvg(weighting="ht")},
}
AXES = ("availability", "work", "clock", "membership", "filtering", "selection", "local", "personal", "width",
        "aggregation", "server", "assist", "asynchrony", "attack")  # fmt: skip


def beside() -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each rule of every other axis, by (axis, name), as sections of a plan."""
    for axis in AXES:
        for name, rule in catalogue(axis).items():
            if name in (*FROM_FILES, *ELSEWHERE):
                continue
            if (axis, name) in NEEDED:
                yield (axis, name), NEEDED[axis, name]
            else:
                in_fleet = axis in ("availability", "work", "clock", "membership")
                yield (axis, name), {"fleet": Fleet(**{axis: rule()})} if in_fleet else {axis: rule()}
    yield from VARIANTS.items()


def joined(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of both; where both weigh updates, the first does, with the weighting of the other."""
    sections = {"local": LOCAL, **other, **first}
    if (
        "aggregation" in first
        and "aggregation" in other
        and "weighting" in {f.name for f in fields(first["aggregation"])}
    ):
        sections["aggregation"] = replace(first["aggregation"], weighting=other["aggregation"].weighting)
    if "fleet" in first and "fleet" in other:
        leaving = replace(first["fleet"].availability, others=other["fleet"].availability)
        sections["fleet"] = replace(other["fleet"], availability=leaving)
    return sections


def tasks(folder: Path) -> dict[bool, Task]:
    """Return clients of two kinds and clients whose labels change, by whether they do; the server has samples."""
    stay, change = network(), drifting(folder, STAGGERED)
    return {
        False: replace(stay, federation=replace(stay.federation, server=held_out_test_set(stay.federation))),
        True: replace(change, federation=replace(change.federation, server=train_of(change.federation).of(0))),
    }


def prepared(task: Task, sections: dict[str, Any], index: int) -> Run:
    """Return the run of these sections on a task."""
    slices = (
        Slices.of(task.module, task.federation.train.fetch(np.arange(1)).x[:1])
        if "width" in sections and "assignment" not in sections
        else None
    )
    plan = Plan(rounds=ROUNDS, evaluate=Cadence(every=10**9), layout=task.layout, slices=slices, **sections)
    federation = task.federation
    people = Population.of(federation.sizes, federation.label_counts(), server_size=4)
    holdouts = None if federation.holdout is None else federation.holdout.sizes
    people = replace(people, drift=federation.drift, holdout_sizes=holdouts)
    models = None if plan.assignment is None else starts(task, plan.assignment.num_models)
    state = State.start(task.layout.flatten(task.module), people, models=models)
    return Run(index=index, task=task, plan=plan, state=state, streams=Streams(0), population=people)


def combinations(name: str, folder: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any], Run]]:
    """Yield each rule beside a rule: its place, its sections, and the run of both."""
    first, task = RULES[name], tasks(folder)[name in ON_DRIFTING_DATA]
    for index, (place, other) in enumerate(beside()):
        if place[0] not in first or place in VARIANTS:
            yield place, other, prepared(task, joined(first, other), index)


ONE_MODEL_ONLY = {  # with an assignment
    "availability": {"appealed"},
    "membership": {"random", "scheduled", "random, vanilla"},
    "filtering": {"greedy", "update-norm"},
    "selection": {"divfl", "low-loss", "optimal", "power-of-choice"},
    "local": {"sgd", "scaffold", "adacomm"},
    "personal": set(catalogue("personal")),
    "width": set(catalogue("width")),
    "aggregation": {"cluster-fedvarp", "fedvarp", "mifa", "fltrust", "krum", "multi-krum", "private", "scheme-a",
                    "scheme-b", "scheme-c", "fedavg, ht"},
    "assist": {"safari"},
    "asynchrony": {"fedbuff"},
}  # fmt: skip
COEFFICIENTS_FIRST = {"membership": {"random", "scheduled"}, "width": set(catalogue("width"))}  # with weights by losses


def is_refused(name: str, place: tuple[str, str]) -> bool:
    """Return whether a combination makes no sense, as a reader of the papers would say."""
    axis, other = place
    if "assignment" in RULES[name]:
        if (name, place) == ("given", ("local", "sgd")):
            return False  # a client always trains the same model, so that its momentum stays that model's
        if name in ON_DRIFTING_DATA and place in (("aggregation", "appeal"), *RELABELLING):
            return True
        return other in ONE_MODEL_ONLY.get(axis, ())
    if name in ("appeal", "appealed") and place == ("local", "adam"):
        return True  # its updates do not lead to the client's own model
    if name == "appealed":
        return place in (("availability", "appealed"), ("aggregation", "joint"), ("aggregation", "private"))
    return other in COEFFICIENTS_FIRST.get(axis, ())


RELABELLING = (("attack", "label-flip"), ("attack", "model-replacement"))


@pytest.mark.parametrize("name", RULES)
def test_contract_what_makes_no_sense_names_both_rules_and_the_way_out(name: str, tmp_path: Path) -> None:
    (first,) = RULES[name].values()
    own_name = type(first.availability if isinstance(first, Fleet) else first).__name__
    for place, other, run in combinations(name, tmp_path):
        found = list(problems_with(run.plan, run.population))
        assert bool(found) == is_refused(name, place), (place, found)
        assert len(found) <= len(other), (place, found)  # one message for each section to change
        for problem in found:
            assert own_name in problem.message or "data that drift" in problem.message, (place, problem)
            assert any(type(r).__name__ in problem.message for r in _rules_of(other)), (place, problem)
            assert re.search(r"\b(Set|Leave|Change) ", problem.message), (place, problem)
            assert problem.setting, (place, problem)


def _rules_of(sections: dict[str, Any]) -> list[Any]:
    """Return the rules of these sections, those of a fleet one by one."""
    fleet = sections.get("fleet", Fleet())
    parts = [fleet.availability, fleet.work, fleet.clock, fleet.membership]
    return [*(value for key, value in sections.items() if key != "fleet"), *(part for part in parts if part)]


@pytest.mark.parametrize("name", RULES)
def test_contract_what_makes_sense_runs(name: str, tmp_path: Path) -> None:
    every = list(combinations(name, tmp_path))
    runs = [(place, run) for place, _, run in every if not is_refused(name, place)]
    before = {place: _models(run.state).clone() for place, run in runs}
    records: list[Any] = []
    numbered = [replace(run, index=index) for index, (_, run) in enumerate(runs)]
    finals = drive(numbered, Vectorised("cpu", block=10_000), records.extend)
    assert len(records) == len(runs) * (ROUNDS + 1)
    for (place, _), final in zip(runs, finals, strict=True):
        assert torch.isfinite(_models(final)).all(), place
        assert not torch.equal(_models(final), before[place]), place
    for index, record in records:
        assert not record.rejected or runs[index][0] == ("attack", "nan"), runs[index][0]


def _models(state: State) -> Tensor:
    return state.model if state.models is None else state.models


def test_contract_every_rule_of_the_new_axes_is_in_some_combination() -> None:
    assert {type(each["assignment"]) for each in RULES.values() if "assignment" in each} == set(
        catalogue("assignment").values()
    )
    tried = {axis for (axis, _), _ in beside()} | {"assignment"}
    assert tried == {
        axis.name for axis in ALL_AXES.values() if axis.is_in_plan and axis.name not in ("schedule", "effort")
    }
