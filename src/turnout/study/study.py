"""The study as a value: one scenario, the arms to compare, and the seeds of the runs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from turnout.analysis.target import Target, target_of
from turnout.analysis.until_clear import FEWEST, UntilClear
from turnout.assignment.assigned import Assignment
from turnout.attacks.attack import Attack
from turnout.axes import PLAN_SECTIONS, STUDY_SECTIONS, default_rule
from turnout.checkpoint import Checkpoint
from turnout.coordinator import Cadence, MemoryLimit, Plan, Trust, Turnover
from turnout.data.assemble import Source
from turnout.data.federation import Federation
from turnout.engine.task import Engine
from turnout.errors import ConfigError, Problem, did_you_mean, unknown_setting
from turnout.fleet import Fleet
from turnout.losses import Loss
from turnout.models.user_modules import Model
from turnout.number_format import plural
from turnout.personal.at_clients import Personal
from turnout.protocols import Aggregation, Assist, Asynchrony, Filtering, Local, Selection, Server
from turnout.requests import Record
from turnout.settings import refuse_unnamed
from turnout.study.validate_rules import arm_problems, section_problems, section_value
from turnout.track.open_trackers import problems as tracker_problems
from turnout.width.rates import AnyWidth

if TYPE_CHECKING:
    from turnout.journal.load import Loaded
    from turnout.study.running import Result

T = TypeVar("T")
OnProgress = Callable[[str, int, Record], None]  # arm, seed, record
Enough = Callable[["Loaded"], bool]  # the results so far
MOST_ROUNDS = 10**9
MOST_SEEDS = 100_000
MOST_RUNS = 10**6  # arms times seeds


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm of a comparison: its name, and the sections in which it differs from the study."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for section in self.changes:
            if section not in STUDY_SECTIONS:
                raise ConfigError(
                    f"Arm {self.name!r} cannot change {section}.{did_you_mean(section, list(STUDY_SECTIONS))} "
                    f"An arm may change {', '.join(STUDY_SECTIONS)}."
                )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def settings_by_name(study_class: type[T]) -> type[T]:
    """Make a dataclass raise ConfigError for settings that are unknown, missing or given without their name."""
    plain: Any = study_class
    plain_init, entries = plain.__init__, {entry.name: entry for entry in fields(plain)}
    required = [n for n, entry in entries.items() if entry.default is MISSING and entry.default_factory is MISSING]

    @wraps(plain_init)
    def checked_init(self: Any, *unnamed: Any, **values: Any) -> None:
        name = study_class.__name__
        refuse_unnamed(unnamed, entries, name)
        problems = [Problem(unknown_setting(name, key, list(entries)), key) for key in values if key not in entries]
        problems += [Problem(f"{name} needs {key}. Pass {key}=… to it.", key) for key in required if key not in values]
        if problems:
            raise ConfigError.of(problems)
        plain_init(self, **values)

    plain.__init__ = checked_init
    return study_class


def arm(name: str, **changes: Any) -> Arm:
    """Return an arm that differs from the study in these sections."""
    return Arm(name, changes)


@settings_by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One choice per axis, the arms that change some of them, and the seeds."""

    data: Source | Federation
    # a rule, a module class or a function: called once per seed; or a module: every seed starts from its weights
    model: Model
    local: Local
    rounds: int  # number of rounds, 1 or more
    loss: Loss | None = None  # the loss to minimise; left out: cross-entropy for class labels, else the squared error
    seeds: int | tuple[int, ...] = 1  # number of seeds, from 0 up, or a list of them: each arm is run once with each
    until_clear: UntilClear | None = None  # add seeds until every comparison is clear; left out: the seeds are fixed
    fleet: Fleet = field(default_factory=Fleet)
    filtering: Filtering = field(default_factory=default_rule("filtering"))
    selection: Selection = field(default_factory=default_rule("selection"))
    aggregation: Aggregation = field(default_factory=default_rule("aggregation"))
    server: Server = field(default_factory=default_rule("server"))
    personal: Personal | None = None  # None: clients keep nothing and use the shared model
    width: AnyWidth | None = None  # None: every client trains the whole model
    assignment: Assignment | None = None  # None: there is one model for all clients
    assist: Assist | None = None  # None: the clients train in every round
    asynchrony: Asynchrony | None = None  # None: the server waits for every selected client
    attack: Attack | None = None  # None: no client is an attacker
    turnover: Turnover = field(default_factory=Turnover)  # what arrivals and departures mean for the objective
    trust: Trust = field(default_factory=Trust)
    memory: MemoryLimit = field(default_factory=MemoryLimit)
    evaluate: Cadence = field(default_factory=Cadence)
    arms: tuple[Arm, ...] = ()  # none: the study itself is the only arm
    name: str = "study"  # the name of the study, and of its folder in runs
    # value of a metric up to which costs are counted, such as {"accuracy": 0.8}; needs a test set
    target: Target | Mapping[str, float] | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)  # how often a run in a folder is saved
    track: tuple[str, ...] = ()  # trackers besides the journal: "tensorboard", "mlflow", "wandb"
    data_seed: int | None = None  # the seed of the partition of the data; left out: the seed of each run

    def __post_init__(self) -> None:
        self._read()
        seeds: Any = self.seeds
        if isinstance(seeds, list | range):
            object.__setattr__(self, "seeds", tuple(seeds))
        track: Any = self.track
        object.__setattr__(self, "track", (track,) if isinstance(track, str) else tuple(track))
        names = [arm.name for arm in self.arms]
        found = value_problems(name=self.name, rounds=self.rounds, seeds=self.seeds, arm=names, track=self.track)
        problems = [*(Problem(message, key) for key, message in found), *section_problems(self)]
        problems += [Problem(message, "target") for message in _target_problems(self)]
        problems += [Problem(message, "data.seed") for message in _data_seed_problems(self)]
        problems += [Problem(message, "turnover") for message in _turnover_problems(self)]
        if not problems:
            problems += [Problem(message, "until_clear") for message in _until_clear_problems(self)]
        if problems:
            raise ConfigError.of(problems)

    @property
    def seeds_text(self) -> str:
        """The number of seeds in words: "5 seeds", or "5 to 40 seeds" if they are added until comparisons are clear."""
        first, last = len(self.looks[0]), len(self.looks[-1])
        return plural(first, "seed") if first == last else f"{first} to {plural(last, 'seed')}"

    def __repr__(self) -> str:
        versions = self.versions()
        rounds = sorted({version.rounds for version in versions.values()})
        round_text = f"{rounds[0]} rounds" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} rounds"
        counts = f"{plural(len(versions), 'arm')} x {self.seeds_text}"
        return f"Study({self.name!r}: {counts}, {round_text})"

    def _read(self) -> None:
        """Replace names and dicts by rules; a dict of an arm changes the rule of the study."""
        if messages := list(arm_problems(self.arms, Arm)):
            raise ConfigError.of(Problem(message, "arm") for message in messages)
        for section in (*STUDY_SECTIONS, "checkpoint", "until_clear"):
            object.__setattr__(self, section, section_value(section, getattr(self, section)))
        object.__setattr__(self, "arms", tuple(self._read_arm(arm) for arm in self.arms))

    def _read_arm(self, arm: Arm) -> Arm:
        try:
            return Arm(arm.name, {s: section_value(s, v, getattr(self, s)) for s, v in arm.changes.items()})
        except ConfigError as error:
            raise ConfigError.of(
                Problem(f"Arm {arm.name!r}: {line}", problem.setting)
                for problem in error.problems
                for line in problem.message.splitlines()
            ) from error

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds; every arm is run once with each."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def looks(self) -> tuple[tuple[int, ...], ...]:
        """The seeds at each look: all of them at the only one, unless seeds are added until comparisons are clear."""
        return (self.all_seeds,) if self.until_clear is None else self.until_clear.looks(self.all_seeds)

    @property
    def plan(self) -> Plan:
        """The plan of the study without its arms."""
        return Plan(**{name: getattr(self, name) for name in PLAN_SECTIONS})

    def versions(self) -> dict[str, "Study"]:
        """Return each arm as a study, by name; a study without arms is its only arm."""
        if not self.arms:
            return {self.name: self}
        return {arm.name: replace(self, arms=(), until_clear=None, **arm.changes) for arm in self.arms}

    def run(
        self,
        out: str | Path | None = None,
        *,
        engine: str | Engine = "vectorised",
        on_progress: OnProgress | None = None,
        together: int | None = None,
        progress: bool = True,
        deterministic: bool = False,
        accept_changed_data: bool = False,
        enough: Enough | None = None,
    ) -> "Result":
        """Run every arm with every seed and return the results.

        Args:
            out: the output folder; None keeps the results in memory.
            engine: "vectorised", "sequential", "ray", or an engine, such as `turnout.engine.Ray(address=…)`.
            on_progress: called with (arm, seed, record) after every round of every run.
            together: number of runs that advance together; None chooses it by the size of the model.
            progress: whether to show progress on standard error if the study takes more than two seconds.
            deterministic: whether to run without autotuning and with one thread per operation on the CPU, which gives
                bit-identical results on any number of cores; slower.
            accept_changed_data: whether to resume although the data changed; the journal records it.
            enough: called after each look of a study with `until_clear`: whether to stop; None: if all arms are clear.
        """
        from turnout.engine.determinism import one_thread
        from turnout.study.running import run_study  # imports this module

        options: dict[str, Any] = {"on_progress": on_progress, "together": together, "progress": progress}
        options |= {"deterministic": deterministic, "accept_changed_data": accept_changed_data, "enough": enough}
        with one_thread() if deterministic else nullcontext():
            return run_study(self, out=out, engine=engine, **options)


def value_problems(**given: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each invalid value; values that are not given are not checked."""
    if "name" in given and not _names_a_folder(given["name"]):
        yield (
            "name",
            (
                f"A study's name also names its folder: it needs 1 to 100 letters, digits, spaces, '.', '-' or '_', "
                f"and no dot in front; got {given['name']!r}. Change name."
            ),
        )
    if "rounds" in given and (not _is_whole(given["rounds"]) or not 1 <= given["rounds"] <= MOST_ROUNDS):
        most = f" and <= {MOST_ROUNDS}" if _is_whole(given["rounds"]) and given["rounds"] > MOST_ROUNDS else ""
        yield "rounds", f"A study needs rounds >= 1{most}, a whole number; got {given['rounds']!r}. Change rounds."
    if "seeds" in given:
        yield from (("seeds", message) for message in _seed_problems(given["seeds"], len(given.get("arm", ()))))
    yield from (("track", message) for message in tracker_problems(given.get("track", ())))
    names = given.get("arm", [])
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable():
            yield "arm", f"An arm needs a name of 1 to 100 printable characters; got {name!r}. Change its name."
        elif names.index(name) == place and names.count(name) > 1:
            yield "arm", f"Arms need names of their own; {name!r} is used {names.count(name)} times. Rename the others."


def _seed_problems(seeds: Any, arms: int) -> Iterator[str]:
    if _is_whole(seeds):
        if not 1 <= seeds <= MOST_SEEDS:
            yield f"A study needs 1 to {MOST_SEEDS} seeds; got {seeds}. Change seeds."
        elif seeds * arms > MOST_RUNS:
            yield f"A study has at most {MOST_RUNS} runs, arms times seeds; got {arms} times {seeds}. Change seeds."
    elif not isinstance(seeds, tuple) or not seeds or not all(_is_whole(s) and 0 <= s < 2**63 for s in seeds):
        yield f"seeds must be a number of seeds, or a list of whole numbers from 0 up; got {seeds!r}. Change seeds."
    elif len(seeds) > MOST_SEEDS or len(seeds) * arms > MOST_RUNS:
        yield f"A study has at most {MOST_SEEDS} seeds and {MOST_RUNS} runs; got {len(seeds)} seeds. Change seeds."
    elif len(set(seeds)) < len(seeds):
        yield f"Seeds must differ from each other; got {list(seeds)}. Change seeds."


def _data_seed_problems(study: Study) -> Iterator[str]:
    for seed in (study.data_seed, *(arm.changes.get("data_seed") for arm in study.arms)):
        if seed is not None and (not _is_whole(seed) or not 0 <= seed < 2**63):
            yield f"data_seed must be a whole number from 0 up, or none; got {seed!r:.40}. Change data_seed."


def _turnover_problems(study: Study) -> Iterator[str]:
    fleets = [study.fleet, *(arm.changes["fleet"] for arm in study.arms if "fleet" in arm.changes)]
    turnovers = [study.turnover, *(arm.changes["turnover"] for arm in study.arms if "turnover" in arm.changes)]
    is_static = all(isinstance(fleet, Fleet) and fleet.membership is None for fleet in fleets)
    if is_static and any(turnover != Turnover() for turnover in turnovers):
        yield (
            "turnover has an effect only if clients arrive and depart, and no arm has a fleet.membership. "
            "Set fleet.membership, or leave turnover out."
        )


def _until_clear_problems(study: Study) -> Iterator[str]:
    rule, seeds = study.until_clear, len(study.all_seeds)
    if rule is None:
        return
    if len(study.arms) < 2:
        yield (
            f"until_clear adds seeds until the arms of a study are told apart; got "
            f"{plural(len(study.versions()), 'arm')}"
            ". Add an [[arm]], or leave until_clear out."
        )
    elif not FEWEST <= seeds <= rule.most:
        yield (
            f"until_clear needs {FEWEST} to {rule.most} seeds (until_clear.most) for its first look; got {seeds}. "
            f"Change "
            "seeds, or until_clear.most."
        )
    elif rule.most * len(study.arms) > MOST_RUNS:
        yield (
            f"A study has at most {MOST_RUNS} runs, arms times seeds; got {len(study.arms)} times {rule.most}. Change "
            "until_clear.most."
        )


def _target_problems(study: Study) -> Iterator[str]:
    """Convert the target to a `Target`, or yield its problem."""
    try:
        target = target_of(study.target)
    except ConfigError as error:
        yield str(error)
        return
    object.__setattr__(study, "target", target)
    changed = [arm.changes["evaluate"] for arm in study.arms if "evaluate" in arm.changes]
    for evaluate in (study.evaluate, *changed):
        if target is not None and isinstance(evaluate, Cadence) and target.metric not in evaluate.may_measure:
            yield (
                f"The target's metric must be one that is measured, {' or '.join(evaluate.may_measure)}; got "
                f"{target.metric!r:.40}. Change target, or evaluate.metrics."
            )
            return


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names_a_folder(name: Any) -> bool:
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or name != name.strip() or name.startswith("."):
        return False
    return all(character.isalnum() or character in " .-_" for character in name)
