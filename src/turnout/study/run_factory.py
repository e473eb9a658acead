"""Makes the parts of each run when they are needed, and shares them between runs.

Arms of a seed share the federation. Runs with the same model section share the module object, so that an engine can
answer them together, unless their modules differ in what is not trained, such as random frozen weights. Every arm of a
seed starts from the same parameters.
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
from turnout.coordinator import Plan, State, check
from turnout.coordinator.compatibility import check_buffers
from turnout.coordinator.widths import check_family_is_used, check_widths, submodels_of
from turnout.data.digest import federation_digest
from turnout.data.federation import Federation, Held, checked
from turnout.data.relabelled import relabelled
from turnout.engine import Task
from turnout.errors import ConfigError, DataError, TurnoutError
from turnout.journal import ClientFacts, RunInfo
from turnout.losses import LOSSES, Loss
from turnout.metrics import MEASURED_ON, OF_SHARED_LAYERS, ON_HOLDOUTS, ON_TEST_SET, measurable
from turnout.models.family import Family
from turnout.models.layout import Layout
from turnout.models.members import Members
from turnout.models.slices import Slices
from turnout.models.user_modules import build_module
from turnout.protocols import Population, View
from turnout.streams import Streams
from turnout.study.driver import Run, World
from turnout.study.object_numbers import number_of
from turnout.study.resolve import fixed_digest, resolved_settings
from turnout.study.study import Study
from turnout.study.task_parts import loss_of, num_outputs
from turnout.traits import AttackTraits, PersonalTraits, traits_of
from turnout.world.deployment.device_samples import SamplesOnDevices
from turnout.world.simulation import simulate

NO_SEED = -1  # of data that was made before the study
MOST_NUMBERS = 1 << 26  # parameters of all runs that advance together: 256 MiB
MOST_BYTES = 1 << 30  # samples of all federations in memory at once
MOST_COUNTS = 50_000_000  # clients times classes


class RunKey(NamedTuple):
    """The arm and the seed of a run."""

    arm: str
    seed: int


class InitialModel(NamedTuple):
    """The module of a run, and its initial parameters and buffers as flat vectors."""

    module: nn.Module
    model: Tensor
    buffers: Tensor | None
    kind: str  # equal for modules with the same code and the same untrained values


ModelKey = tuple[str, int, tuple[int, ...], int]  # model section, id of a user's rule, shape of a sample, outputs


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
    _starts: dict[tuple[ModelKey, int], InitialModel] = field(init=False, default_factory=dict)
    _slices: dict[str, Slices | Members] = field(init=False, default_factory=dict)  # by the kind of a module
    _measurable: dict[tuple[str, int | None], tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.versions = self.study.versions()
        self.configs = {arm: resolved_settings(version) for arm, version in self.versions.items()}

    def info(self, run_key: RunKey, run: Run, run_group: int) -> RunInfo:
        """Return the facts of a run for the journal."""
        return RunInfo(
            arm=run_key.arm,
            seed=run_key.seed,
            rounds=self.versions[run_key.arm].rounds,
            config={
                key: value for key, value in self.configs[run_key.arm].items() if key != "target"
            },  # changes no run
            holdings=_holdings(run),
            run_group=run_group,
            data=self.digest(run_key),
            facts={MEASURED_ON: _measured_on(run.plan.traits.personal)},
        )

    def digest(self, run_key: RunKey) -> str:
        """Return a digest of the data of a run, before any attack on it."""
        self._federation(run_key)
        return self._digests[self._data_key(run_key)]

    def run(self, index: int, run_key: RunKey) -> Run:
        """Return a run at its start; raise if its data, its plan or its model is invalid."""
        version = self.versions[run_key.arm]
        federation = self._federation(run_key)
        server_size = 0 if federation.server is None else len(federation.server)
        holdouts = np.zeros_like(federation.sizes) if federation.holdout is None else federation.holdout.sizes
        population = Population.of(federation.sizes, _label_counts(federation), server_size)
        public_size = 0 if federation.public is None else len(federation.public)
        population = replace(population, holdout_sizes=holdouts, public_size=public_size, drift=federation.drift)
        population = replace(population, groups=federation.client_groups)
        start = self._start(run_key, federation)
        plan = replace(version.plan, layout=Layout.of(start.module))
        check(plan, population)
        check_family_is_used(plan, start.module)
        if plan.width is not None:
            plan = replace(plan, slices=self._slices_of(plan, start, federation))
            check_widths(plan, has_classes=population.label_counts is not None)
        loss = loss_of(version, federation)
        kind = (_kind_of(start, loss), federation.num_classes)
        if kind not in self._measurable:
            self._measurable[kind] = measurable_metrics(start.module, loss, federation)
        check_metrics(version, self._measurable[kind], federation)
        task = Task(federation=federation, module=start.module, loss=loss, kind=_kind_of(start, loss))
        check_buffers(plan, start.buffers is not None)
        buffers = None if start.buffers is None else start.buffers.clone()
        state = State.start(start.model.clone(), population, buffers, self._models(run_key, start, federation))
        streams = Streams(run_key.seed, run_key.arm)
        parts: dict[str, Any] = {"task": task, "plan": plan, "state": state, "population": population}
        return Run(index=index, streams=streams, world=self.world, **parts)

    def _models(self, run_key: RunKey, start: InitialModel, federation: Federation) -> Tensor | None:
        """Return the initial models of a plan with several, one row each; the first is the run's usual one."""
        plan = self.versions[run_key.arm].plan
        if plan.assignment is None:
            return None
        rows, streams = [start.model], Streams(run_key.seed)
        for number in range(1, plan.assignment.num_models):
            if plan.traits.assignment.initial == "equal":
                rows.append(start.model)
                continue
            shape, outputs = federation.example_shape, num_outputs(federation)
            made = build_module(
                self.versions[run_key.arm].model, shape, outputs, streams.torch_generator("init", number)
            )
            rows.append(Layout.of(made).flatten(made).to(self.device))
        return torch.stack(rows)

    def group_size(self, run_keys: Sequence[RunKey]) -> int:
        """Return how many runs can advance together without holding too much; `places` is one seed's."""
        starts = [self._start(run_key, self._federation(run_key)) for run_key in run_keys]
        numbers = max(start.model.numel() for start in starts)
        by_model = MOST_NUMBERS // max(numbers, 1)
        kept = {key: federation for key, federation in self._federations.items() if key[1] == run_keys[0].seed}
        weight = sum(_bytes(federation) for federation in kept.values())
        by_data = len(run_keys) * (MOST_BYTES // max(weight, 1))
        return max(1, min(by_model, max(by_data, len(run_keys))))

    def keep_only(self, run_keys: Sequence[RunKey]) -> None:
        """Release the data and the initial models that none of these runs needs."""
        wanted = {self._data_key(run_key) for run_key in run_keys}
        self._federations = {key: data for key, data in self._federations.items() if key in wanted}
        seeds = {run_key.seed for run_key in run_keys}
        self._attacked = {key: data for key, data in self._attacked.items() if key[0] in wanted and key[2] in seeds}
        self._starts = {key: start for key, start in self._starts.items() if key[1] in seeds}

    def _data_key(self, run_key: RunKey) -> tuple[str, int]:
        version = self.versions[run_key.arm]
        fixed = NO_SEED if isinstance(version.data, Federation) else version.data_seed
        return json.dumps(self.configs[run_key.arm]["data"]), run_key.seed if fixed is None else fixed

    def _federation(self, run_key: RunKey) -> Federation:
        key, data = self._data_key(run_key), self.versions[run_key.arm].data
        if key not in self._federations:
            made = checked(data) if isinstance(data, Federation) else data.build(Streams(key[1]))
            self._digests[key] = federation_digest(made)
            self._federations[key] = made if self.device.type == "cpu" else made.to(self.device)
        federation, attack = self._federations[key], self.versions[run_key.arm].attack
        traits = traits_of(AttackTraits, attack)
        if attack is None or traits.relabel is None or not traits.relabels:
            return federation
        attacked = (key, json.dumps(self.configs[run_key.arm]["attack"]), run_key.seed)
        if attacked not in self._attacked:
            hostile = attack.attackers(federation.num_clients, Streams(run_key.seed))
            self._attacked[attacked] = relabelled(federation, hostile, traits.relabel)
        return self._attacked[attacked]

    def _slices_of(self, plan: Plan, start: InitialModel, federation: Federation) -> Slices | Members:
        """Return the slices of a module, or the members of a family, which runs with the same module share."""
        if start.kind not in self._slices:
            self._slices[start.kind] = submodels_of(plan, start.module, first_sample(federation)[0])
        return self._slices[start.kind]

    def _start(self, run_key: RunKey, federation: Federation) -> InitialModel:
        rule = self.versions[run_key.arm].model
        shape, outputs = federation.example_shape, num_outputs(federation)
        number = 0 if _is_shipped(rule) else number_of(rule)  # the settings of a shipped rule identify it
        key = (json.dumps(self.configs[run_key.arm]["model"]), number, shape, outputs)
        if (key, run_key.seed) not in self._starts:
            made = build_module(rule, shape, outputs, Streams(run_key.seed).torch_generator("init"))
            layout = Layout.of(made)
            model = layout.flatten(made).to(self.device)
            buffers = layout.flatten_buffers(made).to(self.device) if layout.buffer_size else None
            fixed = fixed_digest(made)
            module = self._modules.setdefault((key, fixed), made.to(self.device))
            self._starts[key, run_key.seed] = InitialModel(module, model, buffers, f"{key} {fixed}")
        return self._starts[key, run_key.seed]


def _is_shipped(rule: Any) -> bool:
    """Whether a model, or every part of a family, is one of turnout's own rules."""
    is_own = type(rule) in catalogue("models").values()
    return all(map(_is_shipped, rule.parts)) if isinstance(rule, Family) else is_own


def _kind_of(start: InitialModel, loss: Loss) -> str:
    """Return the kind of a task; a shipped loss counts by its name, any other by its object."""
    name = next((name for name, known in LOSSES.items() if known is loss), f"loss {number_of(loss)}")
    return blake2b(f"{start.kind} {name}".encode(), digest_size=16).hexdigest()


def _label_counts(federation: Federation) -> Ids | None:
    """Return the number of samples per client and class; None if it is unknown or too large."""
    classes = federation.num_classes
    if isinstance(federation.train, SamplesOnDevices):
        return federation.train.label_counts
    if classes is None or not isinstance(federation.train, Held) or federation.num_clients * classes > MOST_COUNTS:
        return None
    return federation.label_counts()


def _measured_on(personal: PersonalTraits) -> str:
    """Return what the loss and the accuracy of a run are measured of and on."""
    if not personal.has_shared_model:
        return ON_HOLDOUTS
    return ON_TEST_SET if personal.shares_whole_model else OF_SHARED_LAYERS


def _holdings(run: Run) -> ClientFacts:
    """Return the data sizes of a run's clients, and their speeds if the clock has them."""
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
        drift=data.drift,
    )


def first_sample(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return the first sample of the first client, and its label, as a batch of one."""
    slab = federation.train.fetch(np.zeros(1, dtype=np.int64))
    first = int(slab.starts[0]) if slab.order is None else int(slab.order[int(slab.starts[0])])
    return slab.x[first : first + 1], slab.y[first : first + 1]


def measurable_metrics(module: nn.Module, loss: Loss, federation: Federation) -> tuple[str, ...]:
    """Return the metrics that can be measured; raise if the model or the loss fails on a sample of the federation."""
    sample, label = first_sample(federation)
    was_training = module.training
    try:
        with torch.no_grad():
            output = module.eval()(sample)
            value = None if _is_too_narrow(output, label, loss, federation) else loss(output, label)
    except TurnoutError:
        raise
    except Exception as error:  # modules and losses raise any exception on a wrong shape or type
        raise ConfigError(
            f"{_name(module)} with the loss {_name(loss)} fails on a sample of {federation.name}, of shape "
            f"{tuple(sample.shape[1:])}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. "
            "Change the model, the loss or the data."
        ) from error
    finally:
        module.train(was_training)
    if value is None:
        raise DataError(
            f"The labels of {federation.name} lie in 0…{(federation.num_classes or 1) - 1}, but {_name(module)} has "
            f"{output.shape[1]} outputs. Give the model {federation.num_classes} outputs, or renumber the labels."
        )
    if not isinstance(value, Tensor) or value.shape[:1] != (1,) or value.dim() != 1:
        raise ConfigError(
            f"A loss must return one value per sample; {_name(loss)} returned shape "
            f'{tuple(getattr(value, "shape", ()))} for one sample. Use reduction="none", or average over the rest.'
        )
    return measurable(output, label, federation.num_classes)


def _is_too_narrow(output: Tensor, label: Tensor, loss: Loss, federation: Federation) -> bool:
    """Whether a model has fewer outputs than classes, and the loss fails on the last class because of that."""
    classes = federation.num_classes
    if classes is None or label.is_floating_point() or output.dim() != 2 or output.shape[1] >= classes:
        return False
    try:
        loss(output, torch.full_like(label, classes - 1)).cpu()
    except Exception:  # losses raise any exception on a label beyond the outputs
        return True
    return False


def check_metrics(version: Study, possible: Sequence[str], federation: Federation) -> None:
    """Raise if a metric that the study or its target names cannot be measured."""
    target = target_of(version.target)
    if target is not None and federation.test is None:
        raise ConfigError(
            f"target needs a test set, on which {target.metric} is measured; {federation.name} has none. "
            "Give the data a test set, such as test=(x, y) of from_clients, or leave target out.",
            setting="target",
        )
    named: dict[str, str] = dict.fromkeys(version.evaluate.metrics, "evaluate.metrics")
    named |= {} if target is None else {target.metric: "target"}
    for metric, setting in named.items():
        if metric not in possible:
            raise ConfigError(
                f"{setting} names {metric}, which cannot be measured on {federation.name}: accuracy needs one class "
                "index per sample as its label, and a model with one output per class. "
                f"Change {setting}, the labels or the model."
            )


def _name(thing: object) -> str:
    return getattr(thing, "__name__", type(thing).__name__)


def _bytes(federation: Federation) -> int:
    train = federation.train
    return train.x.numel() * train.x.element_size() if isinstance(train, Held) else 0
