"""Recipes: algorithms by the name the field knows them by, as the sections of a study that make them.

To add one, add an entry. An arm's `recipe = "name"` merges these sections over the study's shared ones, and the
arm's own sections over them. The rules that a recipe names define it, and so do the settings in `defining`: an arm in
which one of them has another value is refused, for it would be another algorithm under the recipe's name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.catalogue import did_you_mean
from turnout.errors import ConfigError
from turnout.settings import shown
from turnout.study.config_tree import DEFAULT_USE, Node, Where, as_table

ABOVE_ZERO: Any = object()  # in Recipe.defining: any number but 0
SGD = {"local.use": ("sgd",)}
CONTROLLED = {**SGD, "local.control": ("average", "gradient")}
PULLED = {**SGD, "local.prox_strength": ABOVE_ZERO}
EVERYONE = {"selection.cohort_size": ("none",)}
CORRECTED = {"local.correction": ("joint",)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One named algorithm."""

    about: str  # one line, for `turnout ls recipes`
    sections: dict[str, Any]
    defining: Mapping[str, Any] = field(default_factory=dict)  # the values that a setting may have; rules are added

    def defined_by(self) -> dict[str, Any]:
        """Return every setting that defines it with the values it may have: the rules it names first."""
        return {**_uses(self.sections), **self.defining}


RECIPES: dict[str, Recipe] = {
    "fedavg": Recipe(
        "the average of the changes of whoever answered, weighted by data size",
        {"aggregation": {"use": "fedavg", "weighting": "ratio"}, "server": {"use": "sgd", "lr": 1.0}},
    ),
    "fedprox": Recipe(
        "FedAvg with a pull towards the round's model at every local step",
        {"aggregation": {"use": "fedavg"}, "local": {"prox_strength": 0.01}},
        PULLED,
    ),
    "scaffold": Recipe(
        "local SGD with control variates that cancel each client's drift",
        {
            "local": {"control": "average"},
            "aggregation": {"use": "fedavg", "weighting": "mean"},
            "server": {"use": "sgd"},
        },
        CONTROLLED,
    ),
    "scaffold-exp": Recipe(
        "SCAFFOLD with the server rate that FedExP reads off each round",
        {"local": {"control": "average"}, "aggregation": {"use": "fedavg", "weighting": "mean"}, "server": "fedexp"},
        CONTROLLED,
    ),
    "fednova": Recipe(
        "progress per unit of work, averaged: unequal work no longer changes the objective",
        {"aggregation": {"use": "fednova", "weighting": "ratio"}, "server": {"use": "sgd"}},
    ),
    "fednova-prox": Recipe(
        "FedNova with a pull towards the round's model at every local step",
        {"local": {"prox_strength": 0.01}, "aggregation": {"use": "fednova"}, "server": {"use": "sgd"}},
        PULLED,
    ),
    "fednova-vr": Recipe(
        "FedNova with control variates that cancel each client's drift",
        {"local": {"control": "average"}, "aggregation": {"use": "fednova"}, "server": {"use": "sgd"}},
        CONTROLLED,
    ),
    "fednova-hybrid": Recipe(
        "FedNova with momentum at the clients and slow momentum at the server",
        {
            "local": {"momentum": 0.9},
            "aggregation": {"use": "fednova"},
            "server": {"use": "slow-momentum", "momentum": 0.9},
        },
        {**SGD, "local.momentum": ABOVE_ZERO, "server.momentum": ABOVE_ZERO},
    ),
    "scheme-a": Recipe(
        "everyone who is up is asked, and only those who finish count",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-a"},
        EVERYONE,
    ),
    "scheme-b": Recipe(
        "everyone who is up is asked, and unfinished work counts as it is",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-b"},
        EVERYONE,
    ),
    "scheme-c": Recipe(
        "everyone who is up is asked, and unfinished work is scaled up to what was asked",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-c"},
        EVERYONE,
    ),
    "fedexp": Recipe(
        "FedAvg with a server rate read off each round from how much the changes cancel",
        {"aggregation": {"use": "fedavg", "weighting": "ratio"}, "server": {"use": "fedexp", "eps": 1e-3}},
    ),
    "fedavgm": Recipe(
        "FedAvg with momentum at the server",
        {"aggregation": {"use": "fedavg"}, "server": {"use": "fedavgm", "momentum": 0.9}},
        {"server.momentum": ABOVE_ZERO},
    ),
    "fedadagrad": Recipe(
        "FedAvg with Adagrad at the server",
        {"aggregation": {"use": "fedavg"}, "server": {"use": "fedadagrad", "lr": 0.1, "adaptivity": 1e-3}},
    ),
    "fedadam": Recipe(
        "FedAvg with Adam at the server",
        {"aggregation": {"use": "fedavg"}, "server": {"use": "fedadam", "lr": 0.01, "adaptivity": 1e-3}},
    ),
    "fedyogi": Recipe(
        "FedAvg with Yogi at the server",
        {"aggregation": {"use": "fedavg"}, "server": {"use": "fedyogi", "lr": 0.01, "adaptivity": 1e-3}},
    ),
    "fedvarp": Recipe(
        "the last change of everyone who was not asked stands in for the one they did not send",
        {"aggregation": {"use": "fedvarp", "weighting": "mean"}, "server": {"use": "sgd"}},
    ),
    "cluster-fedvarp": Recipe(
        "FedVARP with one remembered change per cluster of clients",
        {"aggregation": {"use": "cluster-fedvarp", "num_clusters": 5}, "server": {"use": "sgd"}},
    ),
    "mifa": Recipe(
        "the average of everyone's last change, whoever is up",
        {"aggregation": {"use": "mifa", "wait": False}, "server": {"use": "sgd"}},
    ),
    "adacomm": Recipe(
        "FedAvg with many local steps at first and fewer as the loss falls",
        {
            "local": {"effort": {"use": "adacomm", "start": 20, "every": 10}, "epochs": "none", "steps": "none"},
            "aggregation": {"use": "fedavg"},
            "server": {"use": "sgd"},
        },
    ),
    "local-adagrad-joint": Recipe(
        "Adagrad at the clients, with the bias of their preconditioners taken out",
        {
            "local": {"use": "adagrad", "lr": 0.1, "batch_size": 20, "epochs": 1, "correction": "joint"},
            "aggregation": "joint",
        },
        CORRECTED,
    ),
    "local-adam-joint": Recipe(
        "Adam at the clients, with the bias of their preconditioners taken out",
        {
            "local": {"use": "adam", "lr": 0.01, "batch_size": 20, "epochs": 1, "correction": "joint"},
            "aggregation": "joint",
        },
        CORRECTED,
    ),
    "local-yogi-joint": Recipe(
        "Yogi at the clients, with the bias of their preconditioners taken out",
        {
            "local": {"use": "yogi", "lr": 0.01, "batch_size": 20, "epochs": 1, "correction": "joint"},
            "aggregation": "joint",
        },
        CORRECTED,
    ),
}


def recipe_named(name: str) -> Recipe:
    """Return the recipe of this name."""
    if name not in RECIPES:
        raise ConfigError(
            f"There is no recipe {name!r}.{did_you_mean(name, list(RECIPES))} "
            f"There are {', '.join(list(RECIPES)[:6])}: see `turnout ls recipes`."
        )
    return RECIPES[name]


def contradictions(name: str, sections: Mapping[str, Node]) -> Iterator[tuple[Where, str]]:
    """Yield where and how an arm's sections, merged, contradict what defines its recipe: once for each section."""
    recipe, told = recipe_named(name), set()
    for path, allowed in recipe.defined_by().items():
        section = path.partition(".")[0]
        place, got = _found(sections[section], path.split("."))
        if section not in told and not (bool(got) if allowed is ABOVE_ZERO else got in allowed):
            told.add(section)
            needed = f"{path} above 0" if allowed is ABOVE_ZERO else f"{path} = {' or '.join(map(shown, allowed))}"
            yield (
                place.where,
                f"The recipe {name} stands for {recipe.about}. It needs {needed}; this arm has {shown(got)}. "
                f"Change {path}, or leave the recipe out and write its sections in the arm.",
            )


def _uses(sections: Mapping[str, Any], path: str = "") -> dict[str, tuple[str, ...]]:
    """Return the rules that sections name, by path; a section that is a text is the name of a rule."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in sections.items():
        if key == "use":
            found[f"{path}use"] = (value,)
        elif isinstance(value, Mapping):
            found |= _uses(value, f"{path}{key}.")
        elif not path:
            found[f"{key}.use"] = (value,)
    return found


def _found(node: Node, path: list[str]) -> tuple[Node, Any]:
    """Return a setting's value, and its node or, where it is left out, the table that lacks it."""
    for key in path[1:]:
        table = as_table(node)
        if table is None or key not in table.value:
            return node, DEFAULT_USE.get(path[-2]) if key == "use" else "none"
        node = table.value[key]
    return node, node.plain()
