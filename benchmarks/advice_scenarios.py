"""The scenarios of `benchmarks.advice`: 8 for development, and 24 that were held out while the advice was tuned.

A scenario is a data set with a model, a fleet with a selection, and the local work. No data section, fleet or kind of
work is in both lists, and the seeds differ.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import turnout as to

Parts = Mapping[str, dict[str, Any]]
Names = tuple[str, str, str]  # of the data, the fleet and the work

HELD_OUT_DATA: Parts = {
    "SYNTHETIC": {
        "data": to.data.Synthetic(alpha=1.0, beta=1.0, clients=30),
        "model": to.models.Softmax(),
        "local": {"lr": 0.05, "batch_size": 50},
        "rounds": 40,
    },
    "MNIST": {
        "data": to.data.Mnist(clients=30, partition=to.data.partition.Shards(per_client=2), samples=1500),
        "model": to.models.MLP(hidden=(16,)),
        "local": {"lr": 0.05, "batch_size": 10},
        "rounds": 40,
    },
    "HAPT": {
        "data": to.data.Hapt(clients=20, hop=128),
        "model": to.models.MLP(hidden=(16,)),
        "local": {"lr": 0.05, "batch_size": 20},
        "rounds": 40,
    },
}
HELD_OUT_FLEETS: Parts = {
    "always, all": {"selection": to.selection.Uniform()},
    "half up, 5 asked": {
        "fleet": to.Fleet(availability=to.fleet.Bernoulli(prob=0.5)),
        "selection": to.selection.Uniform(cohort_size=5),
    },
    "by label, 5 asked": {
        "fleet": to.Fleet(availability=to.fleet.Bernoulli(profile="labels", least=0.1)),
        "selection": to.selection.Uniform(cohort_size=5),
    },
    "in 3 groups": {"fleet": to.Fleet(availability=to.fleet.Cyclic(groups=3, grouping="labels"))},
}
HELD_OUT_WORK: Parts = {"5 steps": {"steps": 5}, "1 or 2 epochs": {"epochs": (1, 2)}}
HELD_OUT_SEEDS = (20, 21, 22)

DEVELOPMENT_DATA: Parts = {
    "SYNTHETIC(½, ½)": {
        "data": to.data.Synthetic(alpha=0.5, beta=0.5, clients=24),
        "model": to.models.Softmax(),
        "local": {"lr": 0.03, "batch_size": 40},
        "rounds": 35,
    },
    "MNIST, Dirichlet": {
        "data": to.data.Mnist(
            clients=24,
            partition=to.data.partition.Dirichlet(concentration=0.2, min_size=5, top_up=True),
            samples=1200,
        ),
        "model": to.models.MLP(hidden=(12,)),
        "local": {"lr": 0.03, "batch_size": 8},
        "rounds": 35,
    },
    "HAPT, 15 people": {
        "data": to.data.Hapt(clients=15, hop=128),
        "model": to.models.MLP(hidden=(24,)),
        "local": {"lr": 0.03, "batch_size": 15},
        "rounds": 30,
    },
}
DEVELOPMENT_FLEETS: Parts = {
    "always, 4 asked": {"selection": to.selection.Uniform(cohort_size=4)},
    "4 in 5 up": {"fleet": to.Fleet(availability=to.fleet.Bernoulli(prob=0.8))},
    "by label, 8 asked": {
        "fleet": to.Fleet(availability=to.fleet.Bernoulli(profile="labels", least=0.25)),
        "selection": to.selection.Uniform(cohort_size=8),
    },
    "in 2 groups": {"fleet": to.Fleet(availability=to.fleet.Cyclic(groups=2, grouping="labels"))},
}
DEVELOPMENT_WORK: Parts = {"8 steps": {"steps": 8}, "1 epoch": {"epochs": 1}}
DEVELOPMENT_SEEDS = (10, 11, 12)

HELD_OUT: tuple[Names, ...] = tuple(product(HELD_OUT_DATA, HELD_OUT_FLEETS, HELD_OUT_WORK))
DEVELOPMENT: tuple[Names, ...] = (
    ("SYNTHETIC(½, ½)", "always, 4 asked", "8 steps"),
    ("SYNTHETIC(½, ½)", "4 in 5 up", "1 epoch"),
    ("SYNTHETIC(½, ½)", "by label, 8 asked", "1 epoch"),
    ("SYNTHETIC(½, ½)", "in 2 groups", "8 steps"),
    ("MNIST, Dirichlet", "always, 4 asked", "1 epoch"),
    ("MNIST, Dirichlet", "by label, 8 asked", "8 steps"),
    ("HAPT, 15 people", "always, 4 asked", "8 steps"),
    ("HAPT, 15 people", "in 2 groups", "8 steps"),
)


def scenarios(*, development: bool = False) -> Iterator[tuple[str, to.Study]]:
    """Yield (name, study without arms) of the held-out scenarios, or of those for development."""
    held_out = (HELD_OUT, HELD_OUT_DATA, HELD_OUT_FLEETS, HELD_OUT_WORK, HELD_OUT_SEEDS)
    other = (DEVELOPMENT, DEVELOPMENT_DATA, DEVELOPMENT_FLEETS, DEVELOPMENT_WORK, DEVELOPMENT_SEEDS)
    names, data, fleets, work, seeds = other if development else held_out
    for name in names:
        sections = {**data[name[0]], **fleets[name[1]]}
        sections["local"] = to.local.SGD(**sections["local"], **work[name[2]])
        yield " / ".join(name), to.Study(**sections, seeds=seeds, data_seed=seeds[0], name="scenario")
