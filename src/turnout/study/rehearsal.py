"""Rehearse the rules that the advice ranks: a few rounds of each, on the study's own clients, with the same draws.

The seeds are not those of the study, and the models are thrown away. The test set has no say: models are measured on
training samples of all clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from turnout import algorithms
from turnout.algorithms.algorithm import Sections
from turnout.analysis.diagnosis.advice import PROX_STRENGTH, SERVER_LR, SERVER_MOMENTUM
from turnout.analysis.diagnosis.rehearsal import BASELINE, FINALISTS, Rehearsal, rehearsed_rounds
from turnout.array_types import Floats
from turnout.coordinator import Cadence, Plan, State
from turnout.data.federation import Federation, Samples
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.number_format import plural
from turnout.protocols import Population
from turnout.requests import Record, Steps
from turnout.streams import Streams
from turnout.study.driver import World, drive
from turnout.study.run_factory import RunFactory, RunKey
from turnout.study.study import Arm, Study
from turnout.world.simulation import simulate

MOST_CLIENTS, MOST_SAMPLES = 1000, 5000  # whose training samples the models are measured on
Tell = Callable[[str], None]  # called with the current activity
CANDIDATES: Mapping[str, Sections] = {
    "fedavg": algorithms.fedavg(),
    "fedprox": algorithms.fedprox(prox_strength=PROX_STRENGTH),
    "fednova": algorithms.fednova(),
    "scaffold": algorithms.scaffold(),
    "fedvarp": algorithms.fedvarp(),
    "mifa": algorithms.mifa(),
    "fedexp": algorithms.fedexp(),
    "fedavgm": algorithms.fedavgm(momentum=SERVER_MOMENTUM, server_lr=SERVER_LR),
}


def rehearse(version: Study, seed: int, engine: Engine, tell: Tell) -> Rehearsal:
    """Rehearse every candidate that goes with an arm of a study, and the best ones with a second seed.

    Args:
        version: the arm, as a study.
        seed: the seed whose data is used.
        engine: trains and measures.
        tell: called with the current activity.
    """
    rounds, first = rehearsed_rounds(version.rounds), max(version.all_seeds) + 1
    study, left_out = with_candidates(_short(version, seed, (first, first + 1), rounds))
    factory = RunFactory(study, engine.device, _only(rounds[-1]))
    names = []
    for arm in study.arms:
        try:
            factory.run(0, RunKey(arm.name, first))
            names.append(arm.name)
        except ConfigError as error:
            left_out[arm.name] = str(error)
    tried = _run(factory, names, first, rounds, engine, tell)
    found = Rehearsal(rounds=tuple(rounds), error_name=tried.error_name, errors=tried.errors(names), left_out=left_out)
    finalists = [name for name in found.errors if name in (*found.ranked(version.rounds)[:FINALISTS], BASELINE)]
    again = _run(factory, finalists, first + 1, rounds, engine, tell).errors(finalists)
    twice = {name: np.concatenate([found.errors[name], again[name]]) for name in finalists}
    return replace(found, errors={**found.errors, **twice})


def _run(factory: RunFactory, names: Sequence[str], seed: int, rounds: range, engine: Engine, tell: Tell) -> "_Errors":
    """Run some candidates with one seed, as many together as there is room for."""
    keys = [RunKey(name, seed) for name in names]
    errors = _Errors(names=names, rounds=rounds, tell=tell)
    size = factory.group_size(keys) if keys else 1
    for start in range(0, len(keys), size):
        runs = [factory.run(start + place, key) for place, key in enumerate(keys[start : start + size])]
        drive(runs, engine, errors.take, errors.skip)
    return errors


def with_candidates(version: Study) -> tuple[Study, dict[str, str]]:
    """Return an arm of a study with the candidates as arms, and why each of the others does not go with it."""
    local = version.local
    if isinstance(local, SGD):
        local = replace(local, prox_strength=0.0, control="none")
    plain = replace(version, local=local)
    arms: list[Arm] = []
    left_out: dict[str, str] = {}
    for name, sections in CANDIDATES.items():
        arm = Arm(name, {**CANDIDATES["fedavg"], **sections})
        try:
            arms.append(replace(plain, arms=(arm,)).arms[0])
        except ConfigError as error:
            left_out[name] = str(error)
    return replace(plain, arms=tuple(arms)), left_out


def _short(version: Study, seed: int, seeds: Sequence[int], rounds: range) -> Study:
    """Return the study with other seeds on the data of one seed, measured on training samples."""
    streams = Streams(seed if version.data_seed is None else version.data_seed)
    federation = version.data if isinstance(version.data, Federation) else version.data.build(streams)
    return replace(
        version,
        name="rehearsal",
        data=replace(federation, test=training_samples(federation, streams)),
        data_seed=None,
        seeds=tuple(seeds),
        evaluate=Cadence(every=rounds.step),
        target=None,
        track=(),
    )


def training_samples(federation: Federation, streams: Streams) -> Samples:
    """Return training samples of all clients together, each as likely as any other."""
    rng = streams.generator("rehearsal")
    clients = np.sort(rng.permutation(federation.num_clients)[:MOST_CLIENTS])
    slab = federation.train.fetch(clients)
    rows = np.concatenate([np.arange(start, start + size) for start, size in zip(slab.starts, slab.sizes, strict=True)])
    chosen = torch.from_numpy(np.sort(rng.permutation(rows)[:MOST_SAMPLES])).to(slab.x.device)
    places = chosen if slab.order is None else slab.order.to(slab.x.device)[chosen]
    return Samples(slab.x[places], slab.y[places])


def _only(rounds: int) -> World:
    """Return a simulation that ends after so many rounds of the plan, whose schedules know how many there would be."""

    def world(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
        steps = simulate(plan, population, state, streams)
        answer: Any = None
        while True:
            request = steps.send(answer)
            answer = yield request
            if isinstance(request, Record) and request.round == rounds:
                end: State = request.state
                return end

    return world


@dataclass(slots=True, kw_only=True)
class _Errors:
    """The errors of runs in the measured rounds."""

    names: Sequence[str]  # by index of the run
    rounds: range  # that are measured
    tell: Tell
    error_name: str = "loss"  # "error", which is 1 − accuracy, where there are class labels
    values: dict[str, list[float]] = field(default_factory=dict)

    def take(self, records: Sequence[tuple[int, Record]]) -> None:
        """Keep what was measured in one round."""
        round = records[0][1].round
        self.tell(f"rehearsing {plural(len(records), 'rule')}: round {round} of {self.rounds[-1]}")
        if round not in self.rounds:
            return
        for index, record in records:
            value = record.metrics.get("loss", np.nan)
            if "accuracy" in record.metrics:
                self.error_name, value = "error", 1 - record.metrics["accuracy"]
            self.values.setdefault(self.names[index], []).append(value)

    def skip(self, position: int, error: Exception) -> None:
        """Go on without a run that failed: its errors are infinite."""

    def errors(self, names: Sequence[str]) -> dict[str, Floats]:
        """Return the errors of each rule as one row; infinite if its run failed or diverged."""
        found = {}
        for name in names:
            own = self.values.get(name, [])
            is_whole = len(own) == len(self.rounds) and np.isfinite(own).all()
            found[name] = np.array([own]) if is_whole else np.full((1, len(self.rounds)), np.inf)
        return found
