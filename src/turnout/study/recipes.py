"""Recipes: algorithms by the name the field knows them by, as the sections of a study that make them.

To add one, add an entry. An arm's `recipe = "name"` merges these sections over the study's shared ones, and the
arm's own sections over them.
"""

from dataclasses import dataclass
from typing import Any

from turnout.catalogue import did_you_mean
from turnout.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Recipe:
    """One named algorithm."""

    about: str  # one line, for `turnout ls recipes`
    sections: dict[str, Any]


RECIPES: dict[str, Recipe] = {
    "fedavg": Recipe(
        "local SGD and an average weighted by data size, over whoever answered",
        {"aggregation": {"use": "fedavg", "weighting": "ratio"}, "server": {"use": "sgd", "lr": 1.0}},
    ),
    "fedprox": Recipe(
        "FedAvg with a pull towards the round's model at every local step",
        {"aggregation": {"use": "fedavg"}, "local": {"prox_strength": 0.01}},
    ),
    "scaffold": Recipe(
        "local SGD with control variates that cancel each client's drift",
        {
            "local": {"control": "average"},
            "aggregation": {"use": "fedavg", "weighting": "mean"},
            "server": {"use": "sgd"},
        },
    ),
    "scaffold-exp": Recipe(
        "SCAFFOLD with the server rate that FedExP reads off each round",
        {"local": {"control": "average"}, "aggregation": {"use": "fedavg", "weighting": "mean"}, "server": "fedexp"},
    ),
    "fednova": Recipe(
        "progress per unit of work, averaged: unequal work no longer changes the objective",
        {"aggregation": {"use": "fednova", "weighting": "ratio"}, "server": {"use": "sgd"}},
    ),
    "fednova-prox": Recipe(
        "FedNova with a pull towards the round's model at every local step",
        {"local": {"prox_strength": 0.01}, "aggregation": {"use": "fednova"}, "server": {"use": "sgd"}},
    ),
    "fednova-vr": Recipe(
        "FedNova with control variates that cancel each client's drift",
        {"local": {"control": "average"}, "aggregation": {"use": "fednova"}, "server": {"use": "sgd"}},
    ),
    "fednova-hybrid": Recipe(
        "FedNova with momentum at the clients and slow momentum at the server",
        {
            "local": {"momentum": 0.9},
            "aggregation": {"use": "fednova"},
            "server": {"use": "slow-momentum", "momentum": 0.9},
        },
    ),
    "scheme-a": Recipe(
        "everyone who is up is asked, and only those who finish count",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-a"},
    ),
    "scheme-b": Recipe(
        "everyone who is up is asked, and unfinished work counts as it is",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-b"},
    ),
    "scheme-c": Recipe(
        "everyone who is up is asked, and unfinished work is scaled up to what was asked",
        {"selection": {"use": "uniform", "cohort_size": "none"}, "aggregation": "scheme-c"},
    ),
    "fedexp": Recipe(
        "FedAvg with a server rate read off each round from how much the changes cancel",
        {"aggregation": {"use": "fedavg", "weighting": "ratio"}, "server": {"use": "fedexp", "eps": 1e-3}},
    ),
    "fedavgm": Recipe(
        "FedAvg with momentum at the server",
        {"aggregation": {"use": "fedavg"}, "server": {"use": "fedavgm", "momentum": 0.9}},
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
    ),
    "local-adam-joint": Recipe(
        "Adam at the clients, with the bias of their preconditioners taken out",
        {
            "local": {"use": "adam", "lr": 0.01, "batch_size": 20, "epochs": 1, "correction": "joint"},
            "aggregation": "joint",
        },
    ),
    "local-yogi-joint": Recipe(
        "Yogi at the clients, with the bias of their preconditioners taken out",
        {
            "local": {"use": "yogi", "lr": 0.01, "batch_size": 20, "epochs": 1, "correction": "joint"},
            "aggregation": "joint",
        },
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
