"""Does `turnout diagnose` rank a good rule first? It ranks the rules in every scenario, and all eight are run in it.

    python -m benchmarks.advice [--development] [--only TEXT] [--outcomes FILE] [--run-only] [--page FILE]

The advice was tuned on the development scenarios alone; the bar is for the held-out ones (`advice_scenarios`). The
measure was chosen before any held-out scenario was run. The result of a rule with a seed is its mean test accuracy over
the last three evaluations (one every five rounds). A rule beats another if the mean difference over the three seeds,
which are paired, is more than its standard error. The place of a rule is 1 + the number of rules that beat it.

The bars: the rule that the diagnosis ranks first has place 1 or 2 in three quarters of the scenarios, and in none is it
beaten by all others. The strict place, by the mean alone, is in the table beside it.

`--outcomes` keeps accuracies and rankings in a file, so that a second call goes on where the first one stopped;
`--run-only` leaves the ranking out. `--page` writes the table into a page of documentation, between its markers.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import turnout as to
from benchmarks.advice_scenarios import scenarios
from benchmarks.reporting import print_table
from turnout.array_types import Floats
from turnout.engine import Vectorised
from turnout.study.rehearsal import CANDIDATES, rehearse, with_candidates

BEST, SHARE = 2, 0.75  # the first-ranked rule has place 1 or 2 in at least this share of the scenarios
EVERY, LAST = 5, 3  # rounds between two evaluations, and how many of them count
BEGIN, END = "<!-- advice: python -m benchmarks.advice -->", "<!-- /advice -->"
Accuracies = dict[str, list[float]]  # by rule: one per seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario: the rule that was ranked first, and how the rules did."""

    scenario: str
    first: str
    accuracies: Accuracies

    def mean(self, rule: str) -> float:
        """Return the accuracy of a rule, mean over seeds."""
        return float(np.mean(self.accuracies[rule]))

    @property
    def best(self) -> str:
        """The rule with the highest mean."""
        return max(self.accuracies, key=self.mean)

    @property
    def place(self) -> int:
        """1 + the number of rules that beat the first-ranked one by more than the standard error."""
        return 1 + sum(beats(self.accuracies[rule], self.accuracies[self.first]) for rule in self.accuracies)

    @property
    def strict_place(self) -> int:
        """1 + the number of rules with a higher mean than the first-ranked one."""
        return 1 + sum(self.mean(rule) > self.mean(self.first) for rule in self.accuracies)


def beats(one: list[float], other: list[float]) -> bool:
    """Whether a rule's accuracies are higher than another's by more than the standard error of the paired mean."""
    gaps: Floats = np.subtract(one, other)
    return bool(gaps.mean() > gaps.std(ddof=1) / len(gaps) ** 0.5)


def accuracies_of(study: to.Study) -> Accuracies:
    """Run the eight rules and return their accuracies."""
    arms, _ = with_candidates(replace(study, evaluate=to.Cadence(every=EVERY)))
    rounds = arms.run(progress=False).loaded.rounds
    counted = rounds[rounds["round"] > study.rounds - EVERY * LAST].dropna(subset=["loss"])
    means = counted.fillna({"accuracy": 0.0}).groupby(["arm", "seed"])["accuracy"].mean()
    return {rule: [float(means.get((rule, seed), 0.0)) for seed in study.all_seeds] for rule in CANDIDATES}


def page_table(outcomes: list[Outcome]) -> str:
    """Return the table for the page, with a line on the whole."""
    head = "| scenario | ranked first | place | strict place | best rule | points behind |"
    head += "\n|---|---|---|---|---|---|"
    rows = [
        f"| {o.scenario} | {o.first} | {o.place} | {o.strict_place} | {o.best} | "
        f"{100 * (o.mean(o.best) - o.mean(o.first)):.1f} |"
        for o in outcomes
    ]
    return "\n".join([summary(outcomes), "", head, *rows])


def summary(outcomes: list[Outcome]) -> str:
    """Return how often the first-ranked rule was good, beside the best rule that is always the same."""
    always = {rule: [replace(o, first=rule) for o in outcomes] for rule in CANDIDATES}
    other = max(always, key=lambda rule: sum(o.place <= BEST for o in always[rule]))
    strict = sum(o.strict_place <= BEST for o in outcomes)
    plain = sum(o.place <= BEST for o in always["fedavg"])
    return (
        f"The first-ranked rule is {_record(outcomes)} ({strict} are among the best two by the mean alone). The best "
        f"rule that is always the same, {other}, is {_record(always[other])}. FedAvg is among the best two in {plain}."
    )


def _record(outcomes: list[Outcome]) -> str:
    """Return how often a rule was among the best two and the worst, and how far it was behind the best."""
    good, worst = sum(o.place <= BEST for o in outcomes), sum(o.strict_place == len(CANDIDATES) for o in outcomes)
    behind = np.mean([100 * (o.mean(o.best) - o.mean(o.first)) for o in outcomes])
    places = f"among the best two in {good} of {len(outcomes)} scenarios, the worst in {worst}"
    return f"{places}, and {behind:.1f} points behind the best on average"


def outcomes_of(development: bool, only: str, path: Path | None, run_only: bool) -> list[Outcome]:
    """Run the rules, and rank them, in the scenarios whose name has a text in it."""
    known: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path is not None and path.exists() else {}
    found = []
    for name, study in scenarios(development=development):
        if only not in name:
            continue
        own = known.setdefault(name, {})
        if "accuracies" not in own:
            own["accuracies"] = accuracies_of(study)
        if "ranked" not in own and not run_only:
            own["ranked"] = rehearse(study, study.all_seeds[0], Vectorised(), _say_nothing).ranked(study.rounds)
        if path is not None:
            path.write_text(json.dumps(known), encoding="utf-8")
        print(f"{name}: run", flush=True)
        if not run_only:
            found.append(Outcome(scenario=name, first=own["ranked"][0], accuracies=own["accuracies"]))
    return found


def _say_nothing(what: str) -> None:
    pass


def main() -> int:
    """Run the scenarios, print the table, and return 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--development", action="store_true", help="the scenarios on which the advice was tuned")
    parser.add_argument("--only", default="", help="run the scenarios with this text in their name")
    parser.add_argument("--outcomes", type=Path, help="keep accuracies and rankings in this file")
    parser.add_argument("--run-only", action="store_true", help="run the rules without the ranking")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    given = parser.parse_args()
    outcomes = outcomes_of(given.development, given.only, given.outcomes, given.run_only)
    if given.run_only:
        return 0
    rows = [(o.scenario, o.first, str(o.place), str(o.strict_place), o.best) for o in outcomes]
    print_table("advice", ("scenario", "ranked first", "place", "strict", "best"), rows)
    print(summary(outcomes))
    if given.page:
        before, _, rest = given.page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        given.page.write_text(f"{before}{BEGIN}\n{page_table(outcomes)}\n{END}{after}", encoding="utf-8")
    good = sum(o.place <= BEST for o in outcomes)
    return int(good < SHARE * len(outcomes) or any(o.place == len(CANDIDATES) for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
