"""Does `turnout diagnose` rank the right rule first? Every scenario is diagnosed, then the eight rules are run in it.

    python -m benchmarks.advice [--only TEXT] [--tuning] [--json FILE] [--page FILE]

There are 24 scenarios: three data sets, four fleets, and two kinds of local work. Nothing was tuned on them; `--tuning`
runs the scenarios, on other data, that the advice was looked at with. A rule is ranked by its final test accuracy, mean
over seeds. The bars: the rule that the diagnosis ranks first is among the best two in three quarters of the scenarios,
and never the worst. `--page` writes the table into a page of documentation, between its markers.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import turnout as to
from benchmarks.reporting import print_table, write_json
from turnout.analysis.diagnosis.advice import PROX_STRENGTH, SERVER_LR, SERVER_MOMENTUM
from turnout.study.diagnose import diagnose_study

SEEDS = 3
BEST, SHARE = 2, 0.75  # the first-ranked rule is among the best two in at least this share of the scenarios
BEGIN, END = "<!-- advice: python -m benchmarks.advice -->", "<!-- /advice -->"
RULES: dict[str, dict[str, Any]] = {
    "fedavg": to.algorithms.fedavg(),
    "fedprox": to.algorithms.fedprox(prox_strength=PROX_STRENGTH),
    "fednova": to.algorithms.fednova(),
    "scaffold": to.algorithms.scaffold(),
    "fedvarp": to.algorithms.fedvarp(),
    "mifa": to.algorithms.mifa(),
    "fedexp": to.algorithms.fedexp(),
    "fedavgm": to.algorithms.fedavgm(momentum=SERVER_MOMENTUM, server_lr=SERVER_LR),
}
DATA: dict[str, dict[str, Any]] = {
    "SYNTHETIC": {
        "data": to.data.Synthetic(alpha=1.0, beta=1.0, clients=30),
        "model": to.models.Softmax(),
        "local": {"lr": 0.02, "batch_size": 10},
        "rounds": 60,
    },
    "MNIST": {
        "data": to.data.Mnist(clients=50, partition=to.data.partition.Shards(per_client=2), samples=5000),
        "model": to.models.MLP(hidden=(64,)),
        "local": {"lr": 0.05, "batch_size": 20},
        "rounds": 60,
    },
    "HAPT": {
        "data": to.data.Hapt(),
        "model": to.models.MLP(hidden=(32,)),
        "local": {"lr": 0.05, "batch_size": 20},
        "rounds": 60,
    },
}
TUNING_DATA: dict[str, dict[str, Any]] = {
    "digits": {
        "data": to.data.Digits(
            clients=40, partition=to.data.partition.Dirichlet(concentration=0.1, min_size=2, top_up=True)
        ),
        "model": to.models.MLP(hidden=(32,)),
        "local": {"lr": 0.1, "batch_size": 10},
        "rounds": 60,
    }
}
FLEETS: dict[str, dict[str, Any]] = {
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
WORK: dict[str, dict[str, Any]] = {"5 steps": {"steps": 5}, "1 to 5 epochs": {"epochs": (1, 5)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario: the rule that was ranked first, and how the rules did."""

    scenario: str
    first: str
    place: int  # of the first-ranked rule among those that were run, from 1
    accuracies: dict[str, float]
    dominant: str

    @property
    def best(self) -> str:
        """The rule that did best."""
        return max(self.accuracies, key=lambda rule: self.accuracies[rule])


def scenarios(*, tuning: bool) -> Iterator[tuple[str, to.Study]]:
    """Yield (name, study with the eight rules as arms)."""
    for data_name, data in (TUNING_DATA if tuning else DATA).items():
        for fleet_name, fleet in FLEETS.items():
            for work_name, work in WORK.items():
                sections = {**data, **fleet, "local": to.local.SGD(**data["local"], **work)}
                arms = tuple(to.arm(name, **changes) for name, changes in RULES.items())
                yield (
                    f"{data_name} / {fleet_name} / {work_name}",
                    to.Study(**sections, arms=arms, seeds=SEEDS, evaluate=to.Cadence(every=sections["rounds"])),
                )


def outcome(name: str, study: to.Study) -> Outcome:
    """Diagnose a scenario, run the eight rules in it, and return where the first-ranked one ended."""
    advice = diagnose_study(study, "fedavg")
    loaded = study.run(progress=False).loaded
    last = loaded.rounds[loaded.rounds["round"] == study.rounds]
    accuracies = {rule: float(last[last["arm"] == rule]["accuracy"].fillna(0).mean()) for rule in RULES}
    first = advice.advice.rules[0].name
    place = 1 + sum(value > accuracies[first] for value in accuracies.values())
    return Outcome(scenario=name, first=first, place=place, accuracies=accuracies, dominant=advice.dominant)


def page_table(outcomes: list[Outcome]) -> str:
    """Return the table for the page, with a line on the whole."""
    head = "| scenario | largest term | ranked first | its place of 8 | best rule | points behind |"
    head += "\n|---|---|---|---|---|---|"
    rows = [
        f"| {o.scenario} | {o.dominant} | {o.first} | {o.place} | {o.best} | "
        f"{100 * (o.accuracies[o.best] - o.accuracies[o.first]):.1f} |"
        for o in outcomes
    ]
    good, worst = sum(o.place <= BEST for o in outcomes), sum(o.place == len(RULES) for o in outcomes)
    line = f"Among the best two in {good} of {len(outcomes)} scenarios; the worst in {worst}."
    return "\n".join([line, "", head, *rows])


def main() -> int:
    """Run the scenarios, print the table, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run the scenarios with this text in their name")
    parser.add_argument("--tuning", action="store_true", help="run the scenarios that the advice was looked at with")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    outcomes = []
    for name, study in scenarios(tuning=given.tuning):
        if given.only in name:
            outcomes.append(outcome(name, study))
            found = outcomes[-1]
            rows = sorted(found.accuracies.items(), key=lambda entry: -entry[1])
            print(f"{name}: first {found.first}, place {found.place}; {found.dominant}", flush=True)
            print("   ", ", ".join(f"{rule} {value:.3f}" for rule, value in rows), flush=True)
    rows = [(o.scenario, o.dominant, o.first, str(o.place), o.best) for o in outcomes]
    print_table("advice", ("scenario", "largest term", "ranked first", "place", "best"), rows)
    if given.json:
        write_json(given.json, {o.scenario: {"first": o.first, "place": o.place, **o.accuracies} for o in outcomes})
    if given.page:
        before, _, rest = given.page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        given.page.write_text(f"{before}{BEGIN}\n{page_table(outcomes)}\n{END}{after}", encoding="utf-8")
    good = sum(o.place <= BEST for o in outcomes)
    return int(good < SHARE * len(outcomes) or any(o.place == len(RULES) for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
