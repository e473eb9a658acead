"""The axes: the one list of them. A study, its plan, study files, `turnout ls` and the documentation derive from it.

An address such as "turnout.selection.uniform:Uniform" names a class without importing it, so that names and text need
no PyTorch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


def at(address: str) -> Any:
    """Return what an address of turnout names."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: the package of its rules, what a rule must have, and its place in a study."""

    name: str
    section: str  # the table of a study file that sets the rule
    package: str  # holds one module for each rule
    about: str  # what the axis decides, for `turnout ls`
    protocol: str  # address of the protocol that a rule follows
    methods: tuple[str, ...]  # a class with one of these is a rule
    default: str | None = None  # address of the rule that is used where a study names none
    is_required: bool = False  # a study must have the section
    is_optional: bool = False  # a study may have no rule, which is written "none" and is then the default
    is_in_plan: bool = True  # part of the algorithm and its clients, not of the data and the model

    @property
    def is_section(self) -> bool:
        """Whether the rule has a section of its own in a study, not a place inside another one."""
        return "." not in self.section

    @property
    def default_use(self) -> str | None:
        """The name of the default rule in a study file."""
        return None if self.default is None else use_name(self.default.partition(":")[0])

    @property
    def default_class(self) -> str | None:
        """The name of the default rule's class."""
        return None if self.default is None else self.default.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A section of a study that is no rule: the address of the class that holds its settings."""

    section: str
    kind: str
    is_in_plan: bool = True
    is_optional: bool = False  # a study may have none, which is then the default
    presets: str | None = None  # address of functions that make whole sections, by the name that `use` has


def use_name(module: str) -> str:
    """Return the name in a study file of the rule that a module defines."""
    return module.rpartition(".")[2].replace("_", "-")


AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis(
            name="data",
            section="data",
            package="turnout.data",
            about="the data set and its clients",
            protocol="turnout.data.assemble:Source",
            methods=("build",),
            is_required=True,
            is_in_plan=False,
        ),
        Axis(
            name="partition",
            section="data.partition",
            package="turnout.data.partition",
            about="how samples are split among clients",
            protocol="turnout.data.partition:Partition",
            methods=("split",),
            is_in_plan=False,
        ),
        Axis(
            name="models",
            section="model",
            package="turnout.models",
            about="the model that is trained",
            protocol="turnout.models.model_rule:ModelRule",
            methods=("build",),
            is_required=True,
            is_in_plan=False,
        ),
        Axis(
            name="availability",
            section="fleet.availability",
            package="turnout.fleet.availability",
            about="which clients are available",
            protocol="turnout.protocols:Availability",
            methods=("up",),
            default="turnout.fleet.availability.always:Always",
        ),
        Axis(
            name="work",
            section="fleet.work",
            package="turnout.fleet.work",
            about="how many of the asked local steps a client completes",
            protocol="turnout.protocols:Work",
            methods=("done",),
            default="turnout.fleet.work.complete:Complete",
        ),
        Axis(
            name="clock",
            section="fleet.clock",
            package="turnout.fleet.clock",
            about="how long computation and transfer take",
            protocol="turnout.protocols:Clock",
            methods=("run",),
            is_optional=True,
        ),
        Axis(
            name="membership",
            section="fleet.membership",
            package="turnout.fleet.membership",
            about="which clients belong, and when",
            protocol="turnout.protocols:Membership",
            methods=("members",),
            is_optional=True,
        ),
        Axis(
            name="filtering",
            section="filtering",
            package="turnout.filtering",
            about="which available clients may be selected",
            protocol="turnout.protocols:Filtering",
            methods=("keep",),
            default="turnout.filtering.everyone:Everyone",
        ),
        Axis(
            name="selection",
            section="selection",
            package="turnout.selection",
            about="which clients form the cohort",
            protocol="turnout.protocols:Selection",
            methods=("choose",),
            default="turnout.selection.uniform:Uniform",
        ),
        Axis(
            name="local",
            section="local",
            package="turnout.local",
            about="the local optimiser of a client",
            protocol="turnout.protocols:Local",
            methods=("update",),
            default="turnout.local.sgd:SGD",
            is_required=True,
        ),
        Axis(
            name="personal",
            section="personal",
            package="turnout.personal",
            about="what a client keeps for itself",
            protocol="turnout.personal.at_clients:Personal",
            methods=("train", "models"),
            is_optional=True,
        ),
        Axis(
            name="width",
            section="width",
            package="turnout.width",
            about="how much of the model a client trains",
            protocol="turnout.width.rates:AnyWidth",
            methods=("units", "members_of"),
            is_optional=True,
        ),
        Axis(
            name="assignment",
            section="assignment",
            package="turnout.assignment",
            about="which of several models a client trains and uses",
            protocol="turnout.assignment.assigned:Assignment",
            methods=("assign",),
            is_optional=True,
        ),
        Axis(
            name="schedule",
            section="local.schedule",
            package="turnout.local.schedule",
            about="how the local learning rate decays",
            protocol="turnout.local.solver:Schedule",
            methods=("factor",),
            default="turnout.local.schedule.constant:Constant",
        ),
        Axis(
            name="effort",
            section="local.effort",
            package="turnout.local.effort",
            about="how many local steps a client is asked for",
            protocol="turnout.local.solver:Effort",
            methods=("steps",),
            is_optional=True,
        ),
        Axis(
            name="aggregation",
            section="aggregation",
            package="turnout.aggregation",
            about="how the server combines client updates",
            protocol="turnout.protocols:Aggregation",
            methods=("coefficients", "combine"),
            default="turnout.aggregation.fedavg:FedAvg",
        ),
        Axis(
            name="server",
            section="server",
            package="turnout.server",
            about="the server optimiser",
            protocol="turnout.protocols:Server",
            methods=("advance",),
            default="turnout.server.sgd:SGD",
        ),
        Axis(
            name="assist",
            section="assist",
            package="turnout.assist",
            about="when the server trains on its own samples",
            protocol="turnout.protocols:Assist",
            methods=("takes",),
            is_optional=True,
        ),
        Axis(
            name="asynchrony",
            section="asynchrony",
            package="turnout.asynchrony",
            about="how the server aggregates without waiting",
            protocol="turnout.protocols:Asynchrony",
            methods=("weight",),
            is_optional=True,
        ),
        Axis(
            name="attack",
            section="attack",
            package="turnout.attacks",
            about="what malicious clients do",
            protocol="turnout.attacks.attack:Attack",
            methods=("forge", "relabel"),
            is_optional=True,
        ),
    )
}
TABLES: dict[str, Table] = {
    table.section: table
    for table in (
        Table(section="fleet", kind="turnout.fleet:Fleet", presets="turnout.fleet:PRESETS"),
        Table(section="turnover", kind="turnout.coordinator.turnover:Turnover"),
        Table(section="trust", kind="turnout.coordinator.plan:Trust"),
        Table(section="memory", kind="turnout.coordinator.plan:MemoryLimit"),
        Table(section="evaluate", kind="turnout.coordinator.plan:Cadence"),
        Table(section="checkpoint", kind="turnout.checkpoint.schedule:Checkpoint", is_in_plan=False),
        Table(
            section="until_clear",
            kind="turnout.analysis.until_clear:UntilClear",
            is_in_plan=False,
            is_optional=True,
        ),
    )
}
RULE_SECTIONS = {axis.section: axis.name for axis in AXES.values() if axis.is_section}  # with the axis of each
FLEET_AXES = tuple(axis.name for axis in AXES.values() if axis.section.startswith("fleet."))
PLAN_RULES = tuple(axis.section for axis in AXES.values() if axis.is_section and axis.is_in_plan)
PLAN_TABLES = tuple(table.section for table in TABLES.values() if table.is_in_plan)
PLAN_SECTIONS = ("rounds", PLAN_TABLES[0], *PLAN_RULES, *PLAN_TABLES[1:])
STUDY_SECTIONS = ("data", "data_seed", "model", "loss", *PLAN_SECTIONS)  # what an arm may change
REQUIRED_SECTIONS = ("rounds", *(axis.section for axis in AXES.values() if axis.is_required))


def default_rule(axis: str) -> Callable[[], Any]:
    """Return a function that makes the default rule of an axis, for the default of a dataclass field."""
    address = AXES[axis].default
    assert address is not None
    return lambda: at(address)()
