"""The parts of each run, made when they are needed and shared where they can be.

Arms of a seed share the federation, and all runs of one model section share the module object, so that an engine can
answer them together; but not seeds whose modules differ in what is not trained, such as frozen weights that were drawn.
Every arm of a seed starts from the same parameters.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from turnout.analysis.target import target_of
from turnout.array_types import Ids
from turnout.catalogue import catalogue
from turnout.coordinator import State, check
from turnout.data.digest import federation_digest
from turnout.data.federation import Federation, Held, checked
from turnout.data.relabelled import relabelled
from turnout.engine import Task
from turnout.errors import ConfigError, DataError, TurnoutError
from turnout.journal import ClientFacts, RunInfo
from turnout.losses import LOSSES, Loss
from turnout.metrics import measurable
from turnout.models.layout import Layout
from turnout.protocols import Population, View
from turnout.streams import Streams
from turnout.study.driver import Run, World
from turnout.study.resolve import fixed_digest, resolved
from turnout.study.study import Study
from turnout.study.task_parts import loss_of, num_outputs
from turnout.study.user_models import built
from turnout.traits import AttackTraits, traits_of
from turnout.world.deployment.device_samples import SamplesOnDevices
from turnout.world.simulation import simulate

GIVEN = -1  # the seed of data that was made before the study
MOST_NUMBERS = 1 << 26  # parameters of all runs that advance together: 256 MiB
MOST_BYTES = 1 << 30  # samples of all federations that are held together
MOST_COUNTS = 50_000_000  # clients times classes


class Place(NamedTuple):
    """One run of a study."""

    arm: str
    seed: int


class Start(NamedTuple):
    """Where a run starts: the module's code, and its parameters and buffers as flat vectors."""

    module: nn.Module
    model: Tensor
    buffers: Tensor | None
    kind: str  # the same for starts that share the module's code and everything in it that is not trained


ModelKey = tuple[str, int, tuple[int, ...], int]  # the model section, whose it is, a sample's shape, the outputs


@dataclass(slots=True)
class RunFactory:
    """Makes the parts of each run."""

    study: Study
    device: torch.device
    world: World = simulate  # who answers the rounds of its runs
    versions: dict[str, Study] = field(init=False)
    configs: dict[str, dict[str, object]] = field(init=False)
    _federations: dict[tuple[str, int], Federation] = field(init=False, default_factory=dict)
    _digests: dict[tuple[str, int], str] = field(init=False, default_factory=dict)
    _attacked: dict[tuple[tuple[str, int], str, int], Federation] = field(init=False, default_factory=dict)
    _modules: dict[tuple[ModelKey, str], nn.Module] = field(init=False, default_factory=dict)
    _starts: dict[tuple[ModelKey, int], Start] = field(init=False, default_factory=dict)
    _measurable: dict[tuple[str, int | None], tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.versions = self.study.versions()
        self.configs = {arm: resolved(version) for arm, version in self.versions.items()}

    def info(self, place: Place, run: Run, run_group: int) -> RunInfo:
        """Return what the journal keeps of a run."""
        return RunInfo(
            arm=place.arm,
            seed=place.seed,
            rounds=self.versions[place.arm].rounds,
            config={key: value for key, value in self.configs[place.arm].items() if key != "target"},  # changes no run
            holdings=_holdings(run),
            run_group=run_group,
            data=self.digest(place),
        )

    def digest(self, place: Place) -> str:
        """Return a digest of the data of a run, before any attack on it."""
        self._federation(place)
        return self._digests[self._data_key(place)]

    def run(self, index: int, place: Place) -> Run:
        """Return a run, ready to start; raise what is wrong with its data, its plan or its model."""
        version = self.versions[place.arm]
        federation = self._federation(place)
        held = 0 if federation.server is None else len(federation.server)
        kept = np.zeros_like(federation.sizes) if federation.holdout is None else federation.holdout.sizes
        population = replace(Population.of(federation.sizes, _label_counts(federation), held), holdout_sizes=kept)
        plan = version.plan
        check(plan, population)
        start = self._start(place, federation)
        loss = loss_of(version, federation)
        kind = (_kind_of(start, loss), federation.num_classes)
        if kind not in self._measurable:
            self._measurable[kind] = try_out(start.module, loss, federation)
        check_metrics(version, self._measurable[kind], federation)
        task = Task(federation=federation, module=start.module, loss=loss, kind=_kind_of(start, loss))
        buffers = None if start.buffers is None else start.buffers.clone()
        state = State.start(start.model.clone(), population, buffers)
        streams = Streams(place.seed, place.arm)
        parts: dict[str, Any] = {"task": task, "plan": plan, "state": state, "population": population}
        return Run(index=index, streams=streams, world=self.world, **parts)

    def group_size(self, places: Sequence[Place]) -> int:
        """Return how many runs can advance together without holding too much; `places` is one seed's."""
        starts = [self._start(place, self._federation(place)) for place in places]
        numbers = max(start.model.numel() for start in starts)
        by_model = MOST_NUMBERS // max(numbers, 1)
        kept = {key: federation for key, federation in self._federations.items() if key[1] == places[0].seed}
        weight = sum(_bytes(federation) for federation in kept.values())
        by_data = len(places) * (MOST_BYTES // max(weight, 1))
        return max(1, min(by_model, max(by_data, len(places))))

    def keep_only(self, places: Sequence[Place]) -> None:
        """Let go of the data and the starts that none of these runs needs."""
        wanted = {self._data_key(place) for place in places}
        self._federations = {key: held for key, held in self._federations.items() if key in wanted}
        seeds = {place.seed for place in places}
        self._attacked = {key: held for key, held in self._attacked.items() if key[0] in wanted and key[2] in seeds}
        self._starts = {key: start for key, start in self._starts.items() if key[1] in seeds}

    def _data_key(self, place: Place) -> tuple[str, int]:
        version = self.versions[place.arm]
        fixed = GIVEN if isinstance(version.data, Federation) else version.data_seed
        return json.dumps(self.configs[place.arm]["data"]), place.seed if fixed is None else fixed

    def _federation(self, place: Place) -> Federation:
        key, data = self._data_key(place), self.versions[place.arm].data
        if key not in self._federations:
            made = checked(data) if isinstance(data, Federation) else data.build(Streams(key[1]))
            self._digests[key] = federation_digest(made)
            self._federations[key] = made if self.device.type == "cpu" else made.to(self.device)
        held, attack = self._federations[key], self.versions[place.arm].attack
        traits = traits_of(AttackTraits, attack)
        if attack is None or traits.relabel is None or not traits.relabels:
            return held
        attacked = (key, json.dumps(self.configs[place.arm]["attack"]), place.seed)
        if attacked not in self._attacked:
            hostile = attack.attackers(held.num_clients, Streams(place.seed))
            self._attacked[attacked] = relabelled(held, hostile, traits.relabel)
        return self._attacked[attacked]

    def _start(self, place: Place, federation: Federation) -> Start:
        rule = self.versions[place.arm].model
        shape, outputs = federation.example_shape, num_outputs(federation)
        whose = 0 if type(rule) in catalogue("models").values() else id(rule)  # settings tell only turnout's own apart
        key = (json.dumps(self.configs[place.arm]["model"]), whose, shape, outputs)
        if (key, place.seed) not in self._starts:
            made = built(rule, shape, outputs, Streams(place.seed).torch_generator("init"))
            layout = Layout.of(made)
            model = layout.flatten(made).to(self.device)
            buffers = layout.flatten_buffers(made).to(self.device) if layout.buffer_size else None
            fixed = fixed_digest(made)
            module = self._modules.setdefault((key, fixed), made.to(self.device))
            self._starts[key, place.seed] = Start(module, model, buffers, f"{key} {fixed}")
        return self._starts[key, place.seed]


def _kind_of(start: Start, loss: Loss) -> str:
    """Return the kind of a task: turnout's own losses by name, any other by the object it is."""
    name = next((name for name, known in LOSSES.items() if known is loss), f"loss {id(loss)}")
    return blake2b(f"{start.kind} {name}".encode(), digest_size=16).hexdigest()


def _label_counts(federation: Federation) -> Ids | None:
    """Return who holds how much of each class, where that is known and small enough to keep."""
    classes = federation.num_classes
    if isinstance(federation.train, SamplesOnDevices):
        return federation.train.label_counts
    if classes is None or not isinstance(federation.train, Held) or federation.num_clients * classes > MOST_COUNTS:
        return None
    return federation.label_counts()


def _holdings(run: Run) -> ClientFacts:
    """Return what a run's clients hold, and how fast they are where the clock can say."""
    people, pace, data = run.population, run.plan.traits.clock.pace, run.task.federation
    speeds = None
    if pace is not None:
        view = View(round=1, rounds=run.plan.rounds, streams=run.streams, population=people, model=run.state.model)
        speeds = pace(people.everyone, 0, view).seconds_per_step
    return ClientFacts(
        sizes=people.sizes,
        label_counts=people.label_counts,
        seconds_per_step=speeds,
        client_names=data.client_names,
        client_groups=data.client_groups,
    )


def try_out(module: nn.Module, loss: Loss, federation: Federation) -> tuple[str, ...]:
    """Return the metrics that can be measured; raise if the model and the loss cannot take the federation's samples."""
    slab = federation.train.fetch(np.zeros(1, dtype=np.int64))
    first = int(slab.starts[0]) if slab.order is None else int(slab.order[int(slab.starts[0])])
    label = slab.y[first : first + 1]
    was_training = module.training
    try:
        with torch.no_grad():
            output = module.eval()(slab.x[first : first + 1])
            value = None if _is_too_narrow(output, label, loss, federation) else loss(output, label)
    except TurnoutError:
        raise
    except Exception as error:  # whatever a module or a loss raises on a shape or a type it was not made for
        raise ConfigError(
            f"{_called(module)} with the loss {_called(loss)} cannot take a sample of {federation.name}, of shape "
            f"{tuple(slab.x.shape[1:])}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. "
            "Change the model, the loss or the data."
        ) from error
    finally:
        module.train(was_training)
    if value is None:
        raise DataError(
            f"The labels of {federation.name} lie in 0…{(federation.num_classes or 1) - 1}, but {_called(module)} has "
            f"{output.shape[1]} outputs. Give the model {federation.num_classes} outputs, or renumber the labels."
        )
    if not isinstance(value, Tensor) or value.shape[:1] != (1,) or value.dim() != 1:
        raise ConfigError(
            f"A loss must return one value per sample; {_called(loss)} returned shape "
            f'{tuple(getattr(value, "shape", ()))} for one sample. Use reduction="none", or average over the rest.'
        )
    return measurable(output, label, federation.num_classes)


def _is_too_narrow(output: Tensor, label: Tensor, loss: Loss, federation: Federation) -> bool:
    """Whether a model has fewer outputs than there are classes, and its loss fails on the last class for it."""
    classes = federation.num_classes
    if classes is None or label.is_floating_point() or output.dim() != 2 or output.shape[1] >= classes:
        return False
    try:
        loss(output, torch.full_like(label, classes - 1)).cpu()
    except Exception:  # whatever a loss raises on a label beyond the outputs
        return True
    return False


def check_metrics(version: Study, possible: Sequence[str], federation: Federation) -> None:
    """Raise if a metric that the study names, or its target's, cannot be measured."""
    target = target_of(version.target)
    named: dict[str, str] = dict.fromkeys(version.evaluate.metrics, "evaluate.metrics")
    named |= {} if target is None else {target.metric: "target"}
    for metric, setting in named.items():
        if metric not in possible:
            raise ConfigError(
                f"{setting} names {metric}, which cannot be measured on {federation.name}: accuracy needs one class "
                "index per sample as its label, and a model with one output per class. "
                f"Change {setting}, the labels or the model."
            )


def _called(thing: object) -> str:
    return getattr(thing, "__name__", type(thing).__name__)


def _bytes(federation: Federation) -> int:
    held = federation.train
    return held.x.numel() * held.x.element_size() if isinstance(held, Held) else 0
