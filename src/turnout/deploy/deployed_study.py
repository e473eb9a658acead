"""The study of a deployment: what simulates a scenario is refused, and devices take its place."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from turnout.array_types import Ids
from turnout.checkpoint import Checkpoint
from turnout.coordinator.compatibility import problems_with
from turnout.data.federation import Federation, Samples, as_samples, checked
from turnout.errors import ConfigError
from turnout.protocols import Population
from turnout.study.config_tree import Node, Problems
from turnout.study.load import load_study, read_tree
from turnout.study.study import Study
from turnout.world.deployment import DeviceFacts, real_fleet
from turnout.world.deployment.device_samples import SamplesOnDevices, example_of

SIMULATED = {
    "data": "devices have their own samples",
    "fleet": "devices are up, and take their time, as they do",
    "attack": "a deployment does not attack itself",
    "personal": "devices do not train models of their own yet",
    "width": "devices train the whole model",
    "assignment": "devices are sent one model, the same for all",
}
STAND_IN = 'data={use="turnout.world.deployment.device_samples:OnDevices"}'
CLOCK = 'fleet.clock={use="turnout.world.deployment.real_fleet:WallClock"}'
MEMBERSHIP = 'fleet.membership={use="turnout.world.deployment.real_fleet:Connecting"}'  # what `turnover` needs


def load_deployed_study(file: Path) -> Study:
    """Return the study of a deployment; raise ConfigError with everything in it that only a simulation has."""
    root, wrong = read_tree(file), Problems()
    for section, node in _simulated(root):
        wrong.add(node.where, f"A deployment has no [{section}]: {SIMULATED[section]}. Remove the section.")
    wrong.raise_any()
    fleet = [CLOCK, MEMBERSHIP] if "turnover" in root.value else [CLOCK]
    study = load_study(file, [STAND_IN, *fleet], allow_code=True)
    if study.arms or len(study.all_seeds) != 1:
        raise ConfigError(
            f"{file}: A deployment is one run; got {max(len(study.arms), 1)} arms and {len(study.all_seeds)} seeds. "
            "Keep one arm's settings and one seed."
        )
    required = study.plan.traits.aggregation.requires
    if required is not None and required.is_alone:
        raise ConfigError(
            f'{file}: requirement = "alone" has clients train a second model, and devices do not train models of their '
            "own yet. Set aggregation.requirement to the loss that devices require, one for all or one for each."
        )
    is_fixed = study.asynchrony is not None or study.plan.traits.aggregation.privacy is not None
    return replace(study, fleet=real_fleet(with_turnover=not is_fixed), checkpoint=Checkpoint(rounds=1))


def _simulated(root: Node) -> Iterator[tuple[str, Node]]:
    arms = root.value.get("arm")
    tables = [root, *(arms.value if arms is not None and isinstance(arms.value, list) else ())]
    for table in tables:
        for section in SIMULATED:
            if table.is_table and section in table.value:
                yield section, table.value[section]


def check_plan(study: Study, devices: int, *, server_size: int) -> None:
    """Raise if a study's rules do not go together on so many devices."""
    population = Population.of(np.ones(devices, dtype=np.int64), server_size=server_size)
    if found := list(problems_with(study.plan, population)):
        raise ConfigError.of(found)


def server_samples(hooks: Any) -> dict[str, Samples]:
    """Return the samples that the server itself has, by what device.py says: a test set, its own, or none."""
    load = getattr(hooks, "load_server", None)
    given = load() if callable(load) else {}
    if not isinstance(given, dict) or set(given) - {"test", "server"}:
        raise ConfigError('load_server() in device.py must return a table with "test", "server", both or neither.')
    return {name: as_samples(pair, f"The {name}") for name, pair in given.items() if pair is not None}


def federation_of(devices: int, facts: dict[int, DeviceFacts], own: dict[str, Samples]) -> Federation:
    """Return what the server knows of the devices' samples, with its own."""
    form = next(iter(facts.values()))
    sizes: Ids = np.ones(devices, dtype=np.int64)  # of a device that has not joined: it says so when it does
    for number, fact in facts.items():
        sizes[number] = fact.num_examples
    counts = [facts[number].label_counts if number in facts else None for number in range(devices)]
    labels = None if any(row is None for row in counts) else np.stack(cast("list[Ids]", counts))
    example = example_of(form.shape, form.type, form.target_shape, is_class=form.num_classes is not None)
    return checked(
        Federation(
            train=SamplesOnDevices(sizes, example, labels),
            test=own.get("test"),
            server=own.get("server"),
            name="devices",
            num_classes=form.num_classes,
            example_shape=form.shape,
            client_names=tuple(f"device {number}" for number in range(devices)),
            example=example.x,
        )
    )
