"""What `turnout ls` and `turnout show` print."""

import textwrap
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from turnout.catalogue import AXES, LOSSES, axis_named, catalogue, describe, did_you_mean, find
from turnout.errors import ConfigError
from turnout.study import shipped_studies
from turnout.study.recipes import RECIPES
from turnout.study.resolve import to_toml

WIDTH = 100
Listing = dict[str, dict[str, Any]]
Facts = dict[str, Any]  # what is known of one name


def listed(axis: str | None) -> Listing:
    """Return what an axis offers, or every axis: by axis, what it is about and each name with one line."""
    others: dict[str, Callable[[], dict[str, Any]]] = {"recipes": _recipes, "losses": _losses, "studies": _studies}
    if axis in others:
        return {str(axis): others[str(axis)]()}
    if axis is not None and not any(axis in (name, facts.section) for name, facts in AXES.items()):
        names = [*AXES, *others]
        raise ConfigError(f"There is no axis {axis}.{did_you_mean(axis, names)} There are {', '.join(names)}.")
    chosen = list(AXES) if axis is None else [axis_named(axis)]
    found = {name: {"about": AXES[name].about, "rules": _rules(name)} for name in chosen}
    return found if axis is not None else found | {name: make() for name, make in others.items()}


def _rules(axis: str) -> dict[str, str]:
    return {name: describe(rule).summary for name, rule in catalogue(axis).items()}


def _recipes() -> dict[str, Any]:
    return {"about": "whole algorithms, for an arm", "rules": {name: recipe.about for name, recipe in RECIPES.items()}}


def _losses() -> dict[str, Any]:
    lines = {name: (loss.__doc__ or "").splitlines()[0] for name, loss in LOSSES.items()}
    return {"about": "what is minimised", "rules": lines}


def _studies() -> dict[str, Any]:
    return {"about": "studies that come with turnout", "rules": {n: _first_comment(f) for n, f in _files().items()}}


def _files() -> dict[str, str]:
    return {name: file.read_text(encoding="utf-8") for name, file in shipped_studies().items()}


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
    """Return what is known of everything a name can mean: all that `turnout ls` lists, or a class by its address."""
    if ":" in name:
        rule = find(name)
        if not isinstance(rule, type):
            raise ConfigError(f"{name} is not a class, so it has no settings to show.")
        return [_rule_facts("", name, rule)]
    axis, _, short = name.rpartition("/")
    others = {"recipes": _recipe_facts, "losses": _loss_facts, "studies": _study_facts}
    wanted = short.lower().replace("_", "-")
    chosen = list(AXES) if not axis else [] if axis in others else [axis_named(axis)]
    rules = {(a, n): rule for a in chosen for n, rule in catalogue(a).items()}
    matches = [_rule_facts(a, n, rule) for (a, n), rule in rules.items() if wanted in (n, rule.__name__.lower())]
    known = [n for _, n in rules]
    for kind, tell in others.items():
        if axis in ("", kind):
            facts = tell()
            known += facts
            matches += [{"axis": kind, "name": wanted, **facts[wanted]}] if wanted in facts else []
    if not matches:
        raise ConfigError(f"There is nothing called {name!r}.{did_you_mean(short, known)} See `turnout ls`.")
    return matches


def _rule_facts(axis: str, name: str, rule: type) -> Facts:
    return {"axis": axis, "name": name, "class": f"{rule.__module__}:{rule.__qualname__}", **asdict(describe(rule))}


def _recipe_facts() -> dict[str, Facts]:
    return {
        name: {"summary": recipe.about, "sections": recipe.sections, "file": {"arm": [{"name": "any", "recipe": name}]}}
        for name, recipe in RECIPES.items()
    }


def _loss_facts() -> dict[str, Facts]:
    return {name: {"summary": line, "file": {"loss": name}} for name, line in _losses()["rules"].items()}


def _study_facts() -> dict[str, Facts]:
    return {
        name: {"summary": _first_comment(text), "text": text, "command": f"turnout run {name}"}
        for name, text in _files().items()
    }


def shown_text(facts: Facts) -> str:
    """Return one match for reading."""
    place = f"{facts['axis']}/{facts['name']}" if facts["axis"] else facts["name"]
    if "text" in facts:  # it opens with its summary
        return "\n\n".join([place, _indented(facts["text"]), f"to run it: {facts['command']}"])
    blocks = [f"{place}\n{_wrapped(facts['summary'])}"]
    if "file" in facts:
        blocks += [_indented(to_toml(facts["sections"]))] if "sections" in facts else []
        return "\n\n".join([*blocks, "in a study file:", _indented(to_toml(facts["file"]))])
    blocks += [_wrapped(f"Intuition: {facts['intuition']}")] if facts["intuition"] else []
    blocks += [_indented(facts["formula"])] if facts["formula"] else []
    blocks += [_wrapped(facts["notes"])] if facts["notes"] else []
    last = {"Reduces to": "reduces_to", "Differs from the paper": "differs"}
    lines = [_wrapped(f"{label}: {facts[key]}") for label, key in last.items() if facts[key]]
    blocks += ["\n".join(lines)] if lines else []
    blocks.append(_settings_text(facts["settings"]))
    blocks += [_wrapped(f"Reference: {facts['reference']}")] if facts["reference"] else []
    return "\n\n".join(blocks)


def _settings_text(settings: tuple[dict[str, Any], ...]) -> str:
    if not settings:
        return "Settings: none"
    rows = [("setting", "type", "default", "meaning")]
    rows += [
        (s["name"], s["type"], "(needed)" if s["default"] is None else s["default"], s["meaning"]) for s in settings
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(f"{cell:{w}}" for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _indented(text: str) -> str:
    return textwrap.indent(text.strip("\n"), "    ")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH)
