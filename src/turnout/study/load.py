"""Load a study file; all problems are reported at once, each with file and line."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from turnout.analysis.target import target_of
from turnout.axes import AXES, PLAN_TABLES, REQUIRED_SECTIONS, RULE_SECTIONS
from turnout.catalogue import loss_named
from turnout.coordinator.compatibility import holdout_problems, problems, problems_with
from turnout.drift import Drift
from turnout.errors import ConfigError, DataError, Problem, did_you_mean
from turnout.parameters import parameters
from turnout.protocols import Population
from turnout.study.check_models import model_problems
from turnout.study.config_tree import (
    Node,
    Problems,
    Where,
    apply_override,
    as_table,
    merge,
    tree_from_document,
    where_set,
)
from turnout.study.file_limits import MOST_ARMS, TOO_LONG, is_too_deep, read_limited, too_deep_message
from turnout.study.recipe import Recipe, read_recipe
from turnout.study.resolve import MADE_IN_PYTHON
from turnout.study.study import Arm, Study, value_problems
from turnout.study.study_files import shipped_studies
from turnout.study.toml_lines import key_lines
from turnout.study.toml_text import to_toml
from turnout.study.typed_values import FAILED, Reader, node_text
from turnout.track import check_local
from turnout.traits import DataTraits, traits_of

CHANGEABLE = ("rounds", "loss", *RULE_SECTIONS, *PLAN_TABLES)
OWN = ("name", "seeds", "until_clear", "target", "checkpoint", "track")
TOP = (*OWN, "recipe", *CHANGEABLE, "arm")
IN_ARM = ("name", "recipe", *CHANGEABLE)
MOST_COUNTED = 1_000_000  # clients; larger federations are checked after the data is loaded


def load_study(
    path: str | Path, overrides: Sequence[str] = (), *, allow_code: bool = False, allow_network: bool = False
) -> Study:
    """Return the study of a file, or of a shipped study's name.

    Args:
        path: the file, or a name that `turnout ls studies` lists.
        overrides: settings in the form `section.key=value`, applied over the file.
        allow_code: whether it may name rules of other packages as `package.module:Name`, which runs their code.
        allow_network: whether its `track` may name a tracker that sends numbers over the network.
    """
    file = study_file(path)
    wrong = Problems()
    root = read_tree(file)
    for override in overrides:
        root = apply_override(root, override, wrong)
    study = _StudyReader(root, wrong, allow_code).study(default_name=file.stem)
    wrong.raise_any()
    assert study is not None
    if not allow_network:
        check_local(study.track, str(path))
    return study


def study_of(config: Mapping[str, Any], label: str, *, allow_code: bool = False, allow_network: bool = False) -> Study:
    """Return the study of plain values that `resolved_settings` returned; `label` names their place in messages."""
    if is_too_deep(config):
        raise ConfigError(too_deep_message(label))
    if _has_python_parts(config):
        raise ConfigError(
            f"The study in {label} has parts that were made in Python, which a folder cannot store. "
            "Resume it in Python: make the same study and call its run with the same folder."
        )
    wrong = Problems()
    study = _StudyReader(tree_of(to_toml(config), label), wrong, allow_code).study(default_name="study")
    wrong.raise_any()
    assert study is not None
    if not allow_network:
        check_local(study.track, label)
    return study


def _has_python_parts(value: Any) -> bool:
    """Whether plain values describe a part that was made in Python."""
    if isinstance(value, Mapping):
        return MADE_IN_PYTHON in value or any(map(_has_python_parts, value.values()))
    return isinstance(value, list) and any(map(_has_python_parts, value))


def study_file(path: str | Path) -> Path:
    """Return the file of a path or of a shipped study's name."""
    file, shipped = Path(path), shipped_studies()
    try:
        if file.is_file() or (file.exists() and str(path) not in shipped):
            return file
    except (OSError, ValueError):  # a name that no file can have
        pass
    if str(path) in shipped:
        return shipped[str(path)]
    raise ConfigError(
        f"There is no file {path} and no shipped study of that name.{did_you_mean(str(path), list(shipped))} "
        "Check the path, or see `turnout ls studies`."
    )


def read_tree(file: Path) -> Node:
    """Return the tree of a study file."""
    label = file.name if file in shipped_studies().values() else str(file)
    try:
        text = read_limited(file, label)
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror or error}. Check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label}: This is not a text in UTF-8. Save it as UTF-8.") from error
    return tree_of(text, label)


def tree_of(text: str, label: str) -> Node:
    """Return the tree of the text of a study file."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(_malformed(error, text, label)) from error
    if not document:
        raise ConfigError(f"{label}:1: The file is empty. See `turnout check demo` for a study to start from.")
    if is_too_deep(document):
        raise ConfigError(too_deep_message(label))
    return tree_from_document(document, key_lines(text), label)


def _malformed(error: Exception, text: str, label: str) -> str:
    if isinstance(error, RecursionError):
        return too_deep_message(label)
    message = str(error)
    if "integer string conversion" in message and (digits := re.search(r"[0-9_]{4300,}", text)):
        return f"{label}:{text.count(chr(10), 0, digits.start()) + 1}: {TOO_LONG}"
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if place is None:
        line, what = max(len(text.splitlines()), 1), message.removesuffix(" (at end of document)")
    else:
        line, what = int(place[1]), f"{message[: place.start()]} at column {place[2]}"
    return f"{label}:{line}: This is not valid TOML: {what}."


@dataclass(slots=True)
class _StudyReader:
    """Reads a study from a tree."""

    root: Node
    problems: Problems
    allow_code: bool
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = Reader(self.problems, self.allow_code)

    def study(self, default_name: str) -> Study | None:
        """Return the study; None if there are problems, which have been added to the list."""
        top = self.root.value
        if not set(top) & set(TOP):  # not a study file: its contents are not repeated
            self.problems.add(self.root.where, f"This is TOML but no study: it has none of {', '.join(TOP)}.")
            return None
        self._check_keys(self.root, TOP, "A study has no section")
        values = self._own_values(default_name)
        recipe, shared = self._sections(self.root, {})
        overlays = [self._overlay(entry, shared, recipe) for entry in self._arm_entries()]
        apart = _StudyReader(self.root, Problems(), self.allow_code)
        arms = [apart._changes(shared, overlay) for _, overlay in overlays]
        values |= self._shared(shared, [overlay for _, overlay in overlays], arms)
        known = {message for _, message in self.problems.found}  # what arms inherit is reported once
        for where, message in apart.problems.found:
            if message not in known:
                self.problems.add(where, message)
        if self.problems.found:
            return None
        names = [name for name, _ in overlays]
        values["arms"] = tuple(Arm(name, changes) for name, changes in zip(names, arms, strict=True))
        try:
            study = Study(**values)
        except ConfigError as error:  # settings that are valid alone but not together, such as target and metrics
            for problem in error.problems:
                self.problems.add(where_set(self.root, problem.setting), problem.message)
            return None
        self._check_plans(study, shared, dict(overlays))
        return study

    def _check_keys(self, table: Node, known: Sequence[str], complaint: str) -> None:
        for key, node in table.value.items():
            if key not in known:
                near = did_you_mean(key, list(known)) or f" There are {', '.join(known)}."
                self.problems.add(node.where, f"{complaint} {key}.{near}")

    def _own_values(self, default_name: str) -> dict[str, Any]:
        """Read what belongs to the study itself, not to an arm."""
        known, values = parameters(Study), {"name": default_name}
        if list(value_problems(name=default_name)):
            values["name"] = "study"  # the file's own name cannot name a folder
        for key in OWN:
            if key == "target" and key in self.root.value:
                values[key] = self._target(self.root.value[key])
            elif key in self.root.value:
                values[key] = self.reader.setting("A study", known[key], self.root.value[key], "")
        good = {key: value for key, value in values.items() if value is not FAILED}
        for key, message in value_problems(**{key: good[key] for key in ("name", "seeds", "track") if key in good}):
            self.problems.add(self._place(key), message)
        return good

    def _target(self, node: Node) -> Any:
        try:
            return None if node.value == "none" else target_of(node.plain())
        except ConfigError as error:
            self.problems.add(node.where, str(error))
            return FAILED

    def _place(self, key: str) -> Where:
        return self.root.value[key].where if key in self.root.value else self.root.where

    def _arm_entries(self) -> list[Node]:
        node = self.root.value.get("arm", Node([], self.root.where))
        entries = node.value if isinstance(node.value, list) else None
        if entries is None or not all(entry.is_table for entry in entries):
            self.problems.add(node.where, f"Arms are written as [[arm]] tables; got {node_text(node)}.")
            return []
        if len(entries) > MOST_ARMS:
            self.problems.add(node.where, f"A study has at most {MOST_ARMS} arms; got {len(entries)}. Split it.")
            return []
        names = [entry.value["name"].plain() for entry in entries if "name" in entry.value]
        for entry in entries:
            self._check_keys(entry, IN_ARM, "An arm has no section")
            name = entry.value.get("name")
            if name is None:
                self.problems.add(entry.where, 'An arm needs a name. Set name = "…" in this [[arm]].')
            elif names.count(name.plain()) > 1 or list(value_problems(arm=[name.plain()])):
                for _, message in value_problems(arm=[n for n in names if n == name.plain()]):
                    self.problems.add(name.where, message)
        return entries

    def _overlay(self, entry: Node, shared: dict[str, Node], recipe: Recipe | None) -> tuple[str, dict[str, Node]]:
        """Return an arm's name and its sections; the study's recipe applies to every arm."""
        name = entry.value["name"].plain() if "name" in entry.value else ""
        if recipe is None:
            return name, self._sections(entry, shared)[1]
        own = {key: entry.value[key] for key in CHANGEABLE if key in entry.value}
        if "recipe" in entry.value:
            message = "The study has a recipe, which applies to every arm. Write it at the top or in arms, not both."
            self.problems.add(entry.value["recipe"].where, message)
            return name, own
        whole = shared | {key: merge(shared.get(key), node, key) for key, node in own.items()}
        for where, message in recipe.contradictions(whole):
            self.problems.add(where, message)
        return name, own

    def _sections(self, table: Node, shared: dict[str, Node]) -> tuple[Recipe | None, dict[str, Node]]:
        """Return the recipe of a study or an arm, and the recipe's sections merged with its own sections."""
        own = {key: table.value[key] for key in CHANGEABLE if key in table.value}
        recipe = read_recipe(table.value["recipe"], self.reader) if "recipe" in table.value else None
        if recipe is None:
            return None, own
        sections = recipe.sections()
        sections |= {key: merge(sections.get(key), node, key) for key, node in own.items()}
        whole = shared | {key: merge(shared.get(key), node, key) for key, node in sections.items()}
        for where, message in recipe.contradictions(whole):
            self.problems.add(where, message)
        return recipe, sections

    def _changes(self, shared: dict[str, Node], overlay: dict[str, Node]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for key, node in overlay.items():
            changes |= self._section(key, merge(shared.get(key), node, key))
        return changes

    def _shared(
        self, shared: dict[str, Node], overlays: list[dict[str, Node]], arms: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Read the shared sections; an incomplete one that every arm completes is that of the first arm."""
        values: dict[str, Any] = {}
        for key in CHANGEABLE:
            if overlays and all(key in overlay for overlay in overlays):
                alone = _StudyReader(self.root, Problems(), self.allow_code)
                own = alone._section(key, shared[key]) if key in shared else {}
                first = {name: arms[0][name] for name in _fields(key) if name in arms[0]}
                values |= first if alone.problems.found or (key in REQUIRED_SECTIONS and not own) else own
            elif key in shared:
                values |= self._section(key, shared[key])
            elif key == "local":
                values |= self._section(key, Node({}, self.root.where))
            elif key == "rounds":
                self.problems.add(self.root.where, "A study needs rounds. Set rounds = 100, for example, at the top.")
            elif key in REQUIRED_SECTIONS:
                self.problems.add(
                    self.root.where, f"A study needs a [{key}] section: see `turnout ls {RULE_SECTIONS[key]}`."
                )
        return values

    def _section(self, key: str, node: Node) -> dict[str, Any]:
        """Read one section into the study's fields that it sets."""
        if key == "rounds":
            rounds = self.reader.setting("A study", parameters(Study)["rounds"], node, "")
            for _, message in value_problems(rounds=rounds) if rounds is not FAILED else ():
                self.problems.add(node.where, message)
            return {"rounds": rounds}
        if key == "loss":
            return {"loss": self._loss(node)}
        if key in PLAN_TABLES:
            if not node.is_table:
                self.problems.add(node.where, f"{key} must be a table; got {node_text(node)}.")
                return {key: FAILED}
            return {key: self.reader.section(key, node)}
        if key == "data":
            return self._data(node)
        if node.value == "none" and AXES[RULE_SECTIONS[key]].is_optional:
            return {key: None}
        return {key: self.reader.rule(RULE_SECTIONS[key], node, key)}

    def _data(self, node: Node) -> dict[str, Any]:
        """Read [data]; its `seed` is the setting data_seed of the study."""
        table = as_table(node)
        if table is None or "seed" not in table.value:
            return {"data": self.reader.rule("data", node, "data")}
        entries = dict(table.value)
        seed = entries.pop("seed")
        if type(seed.value) is not int or not 0 <= seed.value < 2**63:
            message = f"data.seed must be a whole number from 0 up; got {node_text(seed)}. Change data.seed."
            self.problems.add(seed.where, message)
        return {"data": self.reader.rule("data", Node(entries, table.where), "data"), "data_seed": seed.value}

    def _loss(self, node: Node) -> Any:
        if node.value == "auto":
            return None
        try:
            return loss_named(
                node.value if isinstance(node.value, str) else node_text(node), allow_code=self.allow_code
            )
        except ConfigError as error:
            self.problems.add(node.where, str(error))
            return FAILED

    def _check_plans(self, study: Study, shared: dict[str, Node], overlays: dict[str, dict[str, Node]]) -> None:
        """Add the problems of each arm's combination of rules, with the number of clients if [data] has it."""
        for name, version in study.versions().items():
            sections = dict(shared)
            for key, node in overlays.get(name, {}).items():
                sections[key] = merge(sections.get(key), node, key)
            for problem in _plan_problems(version):
                self.problems.add(where_set(Node(sections, self.root.where), problem.setting), problem.message)


def _plan_problems(version: Study) -> list[Problem]:
    try:
        data = traits_of(DataTraits, version.data)
        clients, server_size, holdout = data.known_clients, data.server_samples or 0, data.holdout
        if data.known_drift is not None:
            return list(problems_with(version.plan, _drifting(data.known_drift()))) or list(model_problems(version))
        if clients is None or clients > MOST_COUNTED:
            found = [*problems(version.plan), *(() if holdout is None else holdout_problems(version.plan, holdout > 0))]
            return found or list(model_problems(version))
        people = Population.of(np.ones(clients, dtype=np.int64), server_size=server_size)
        holdouts = None if holdout is None else np.full(clients, holdout > 0)
        people = replace(people, holdout_sizes=holdouts, public_size=data.public_samples or 0)
        return list(problems_with(version.plan, people)) or list(model_problems(version))
    except DataError as error:
        return [Problem(str(error), "data.change_points")]
    except ConfigError as error:
        return list(error.problems)
    except Exception as error:  # a user's rule that lacks a method of its axis
        return [Problem(f"This combination cannot be checked: {type(error).__name__}: {error}.")]


def _drifting(drift: Drift) -> Population:
    """Return the clients of data that drift, as they are before any data is made."""
    return replace(Population.of(drift.sizes[:, 0]), holdout_sizes=drift.sizes[:, -1], drift=drift)


def _fields(key: str) -> tuple[str, ...]:
    return ("data", "data_seed") if key == "data" else (key,)
