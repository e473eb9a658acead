"""`turnout ls` and `turnout show`. Neither imports PyTorch, but a rule of the user's own may."""

import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from turnout.algorithms import ALGORITHMS
from turnout.algorithms.algorithm import Algorithm
from turnout.axes import AXES
from turnout.catalogue import axis_named, describe, find
from turnout.cli.study_settings import study_settings
from turnout.errors import ConfigError, did_you_mean
from turnout.rule_sources import ShippedRule, shipped_losses, shipped_rules
from turnout.study.study_files import shipped_studies
from turnout.study.toml_text import to_toml

WIDTH = 100
Listing = dict[str, dict[str, Any]]
Facts = dict[str, Any]  # what is known of one name


def listed(axis: str | None) -> Listing:
    """Return what an axis offers, or every axis: by axis, what it is about and each name with one line."""
    if axis in OTHERS:
        return {str(axis): _listed_other(str(axis))}
    if axis is not None and not any(axis in (name, facts.section) for name, facts in AXES.items()):
        names = [*AXES, *OTHERS]
        raise ConfigError(f"There is no axis {axis}.{did_you_mean(axis, names)} There are {', '.join(names)}.")
    chosen = list(AXES) if axis is None else [axis_named(axis)]
    found = {name: {"about": AXES[name].about, "rules": _summaries(name)} for name in chosen}
    return found if axis is not None else found | {name: _listed_other(name) for name in OTHERS}


def _listed_other(kind: str) -> dict[str, Any]:
    about, tell = OTHERS[kind]
    return {"about": about, "rules": {name: facts["summary"] for name, facts in tell().items()}}


def _summaries(axis: str) -> dict[str, str]:
    return {name: rule.summary for name, rule in shipped_rules(axis).items()}


def _first_comment(text: str) -> str:
    """Return a study's opening comment; without one, its name."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    return " ".join(lines) or str(tomllib.loads(text).get("name", ""))


def listing_text(found: Listing) -> str:
    """Return a listing for reading."""
    blocks = []
    for axis, facts in found.items():
        rules: dict[str, str] = facts["rules"]
        width = max(map(len, rules), default=0)
        lines = [f"  {name:{width}}  {line}" for name, line in rules.items()]
        blocks.append("\n".join([f"{axis}: {facts['about']}", *lines]))
    return "\n\n".join(blocks)


def found(name: str) -> list[Facts]:
    """Return the facts of everything with this name: all that `turnout ls` lists, or a class as package.module:Name."""
    if ":" in name:
        rule = find(name)
        if not isinstance(rule, type):
            raise ConfigError(f"{name} is not a class, so it has no settings to show.")
        return [{"axis": "", "name": name, "class": f"{rule.__module__}:{rule.__qualname__}", **asdict(describe(rule))}]
    axis, _, short = name.rpartition("/")
    wanted = short.lower().replace("_", "-")
    chosen = list(AXES) if not axis else [] if axis in OTHERS else [axis_named(axis)]
    rules = [rule for each in chosen for rule in shipped_rules(each).values()]
    matches = [_rule_facts(rule) for rule in rules if wanted in (rule.name, rule.class_name.lower())]
    known = [rule.name for rule in rules]
    for kind, (_, tell) in OTHERS.items():
        if axis in ("", kind):
            facts = tell()
            known += facts
            matches += [{"axis": kind, "name": wanted, **facts[wanted]}] if wanted in facts else []
    if not matches:
        raise ConfigError(f"There is nothing called {name!r}.{did_you_mean(short, known)} See `turnout ls`.")
    return matches


def _rule_facts(rule: ShippedRule) -> Facts:
    names = {"class": f"{rule.module}:{rule.class_name}", "python": rule.in_python}
    return {"axis": rule.axis, "name": rule.name, **names, **asdict(rule.describe())}


def _algorithm_facts() -> dict[str, Facts]:
    return {name: _facts_of(algorithm) for name, algorithm in ALGORITHMS.items()}


def _facts_of(algorithm: Algorithm) -> Facts:
    chosen = algorithm.example.settings
    arguments = ", ".join(f"{setting}={value!r}" for setting, value in chosen.items())
    recipe = {"use": algorithm.name, **chosen} if chosen else algorithm.name
    return {
        "summary": algorithm.summary,
        "docstring": algorithm.docstring,
        "settings": [asdict(setting) for setting in algorithm.settings],
        "sections": {name: section for name, section in algorithm.function(**chosen).items() if section},
        "python": f"turnout.Study(…, **{algorithm.in_python}({arguments}))",
        "file": {"arm": [{"name": algorithm.example.title, "recipe": recipe}]},
    }


def _loss_facts() -> dict[str, Facts]:
    return {
        name: {"summary": line, "file": {"loss": name}, "python": f"turnout.losses.{name.replace('-', '_')}"}
        for name, line in shipped_losses().items()
    }


def _study_facts() -> dict[str, Facts]:
    files = {name: file.read_text(encoding="utf-8") for name, file in shipped_studies().items()}
    return {
        name: {"summary": _first_comment(text), "text": text, "command": f"turnout run {name}"}
        for name, text in files.items()
    }


OTHERS: dict[str, tuple[str, Callable[[], dict[str, Facts]]]] = {
    "settings": ("settings of the study itself", study_settings),
    "algorithms": ("named algorithms, each one choice per axis; recipe names one", _algorithm_facts),
    "losses": ("loss functions", _loss_facts),
    "studies": ("studies that are shipped with turnout", _study_facts),
}


def shown_text(facts: Facts) -> str:
    """Return one match for reading."""
    place = f"{facts['axis']}/{facts['name']}" if facts["axis"] else facts["name"]
    if "text" in facts:  # it opens with its summary
        return "\n\n".join([place, _indented(facts["text"]), f"to run it: {facts['command']}"])
    about = facts["docstring"] if "docstring" in facts else _wrapped(facts["summary"])
    blocks = [f"{place}\n{about}", *_docstring_blocks(facts)]
    blocks += [_settings_text(facts["settings"])] if "settings" in facts else []
    blocks += [_wrapped(f"Reference: {facts['reference']}")] if facts.get("reference") else []
    blocks += [f"in Python: {facts['python']}"] if "python" in facts else []
    blocks += [f"in a study file:\n\n{_indented(to_toml(facts['file']))}"] if "file" in facts else []
    blocks += (
        [f"which stands for these sections:\n\n{_indented(to_toml(facts['sections']))}"] if "sections" in facts else []
    )
    return "\n\n".join(blocks)


def _docstring_blocks(facts: Facts) -> list[str]:
    """Return the parts of a rule's docstring that stand between its summary and its settings."""
    blocks = [_wrapped(f"Intuition: {facts['intuition']}")] if facts.get("intuition") else []
    blocks += [_indented(facts["formula"])] if facts.get("formula") else []
    blocks += [_wrapped(facts["notes"])] if facts.get("notes") else []
    last = {"Reduces to": "reduces_to", "Differs from the paper": "differs"}
    lines = [_wrapped(f"{label}: {facts[key]}") for label, key in last.items() if facts.get(key)]
    return [*blocks, "\n".join(lines)] if lines else blocks


def _settings_text(settings: tuple[dict[str, Any], ...]) -> str:
    if not settings:
        return "Settings: none"
    return "\n".join(["Settings:", *(_setting_text(setting) for setting in settings)])


def _setting_text(setting: dict[str, Any]) -> str:
    """Return a setting's name, type and default on one line, and its meaning below."""
    default = "required" if setting["default"] is None else f"default {setting['default']}"
    head = f"  {setting['name']}: {setting['type']}; {default}"
    meaning = textwrap.fill(setting["meaning"], WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return f"{head}\n{meaning}" if meaning else head


def _indented(text: str) -> str:
    return textwrap.indent(text.strip("\n"), "    ")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH)
