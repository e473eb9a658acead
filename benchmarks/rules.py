"""What each solver and each rule costs beside plain FedAvg, on W2. python -m benchmarks.rules [--json FILE].

How a plan is run (rows in a block, workers, threads) is chosen by a short measurement, among ways that are nearly
as fast as each other: one process is luckier than the next. So everything is measured several times with fresh
choices, rules in turns with plain FedAvg, and the median of all ratios is held against the bar.

And how fast rows are combined, beside a plain `torch.mv` on the same matrix. Exit code 0 when every bar is met.
"""

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure, paired
from benchmarks.turnout_rounds import TurnoutRounds, plan_of, task_of
from benchmarks.workloads import WORKLOADS
from turnout.aggregation import FedNova, FedVARP, SchemeC
from turnout.coordinator import Plan
from turnout.coordinator.advance import _combine  # the very sum a round does
from turnout.coordinator.collecting import Collected
from turnout.requests import Trained
from turnout.rows import Facts
from turnout.server import FedAdam, FedExP

LEAST_THROUGHPUT = 0.5  # of torch.mv


def variants(plan: Plan) -> dict[str, tuple[Plan, float]]:
    """Return each variant of plain FedAvg with its bar, as times the plain round."""
    local = plan.local
    return {
        "momentum": (replace(plan, local=replace(local, momentum=0.9)), 1.35),  # type: ignore[type-var]
        "proximal": (replace(plan, local=replace(local, prox_strength=0.1)), 1.35),  # type: ignore[type-var]
        "controls": (replace(plan, local=replace(local, control="average")), 1.35),  # type: ignore[type-var]
        "FedNova": (replace(plan, aggregation=FedNova()), 1.05),
        "scheme C": (replace(plan, aggregation=SchemeC()), 1.05),
        "FedExP": (replace(plan, server=FedExP()), 1.05),
        "FedAdam": (replace(plan, server=FedAdam()), 1.05),
        "FedVARP": (replace(plan, aggregation=FedVARP()), 1.25),
    }


@dataclass(slots=True)
class Turns:
    """Seconds of a rule and of plain FedAvg, round by round in turns; a list for each choice of how to run."""

    base: list[list[float]] = field(default_factory=list)
    taken: list[list[float]] = field(default_factory=list)

    def add(self, base: list[float], taken: list[float]) -> None:
        """Take in the rounds of one more choice."""
        self.base.append(base)
        self.taken.append(taken)

    def ratios(self) -> tuple[float, float, float]:
        """Return the median of all ratios, and that of the choice with the least and of the one with the most."""
        ratios = np.array(self.taken) / np.array(self.base)
        by_choice = np.median(ratios, axis=1)
        return float(np.median(ratios)), float(by_choice.min()), float(by_choice.max())


def throughput(plan: Plan, rows: int, size: int) -> tuple[Contender, Contender, int]:
    """Return the sum of a round and a plain matrix-vector product on the same rows, and the bytes they read."""
    delta, shares = torch.randn(rows, size), np.full(rows, 1.0 / rows)
    turned, weights = delta.t(), torch.full((rows,), 1.0 / rows)
    ones = np.ones(rows, dtype=np.int64)
    facts = Facts(
        clients=np.arange(rows),
        weights=shares,
        num_examples=ones,
        asked_steps=ones,
        local_steps=ones,
        local_work=shares,
        local_lr=shares,
        multiplicity=ones,
        inclusion_prob=None,
        num_clients=rows,
    )
    answer = Trained(clients=facts.clients, steps=ones, loss=shares, finite=ones > 0, delta=delta)
    collected = Collected(facts.clients, ones, ones, ones, facts, answer, shares)

    class Bare:
        aggregation: dict[str, object] = {}  # noqa: RUF012

    def combine() -> None:
        for _ in _combine(plan, None, Bare(), collected, answer, None):  # type: ignore[arg-type]
            raise AssertionError("a weighted sum asks for nothing")

    return Contender("turnout", combine), Contender("torch.mv", lambda: torch.mv(turned, weights)), delta.nbytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--choices", type=int, default=5, help="fresh choices of how to run")
    parser.add_argument("--repetitions", type=int, default=24, help="pairs of rounds for each")  # some bars are near
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    work = WORKLOADS["W2"]
    task, plan = task_of(work), plan_of(work)
    some = variants(plan)
    turns = {name: Turns() for name in some}
    for choice in range(given.choices):
        plain_rounds = TurnoutRounds(task, plan)
        plain_rounds.settle()
        engine = plain_rounds.engine  # rules that share a solver share what was measured for it, as in one study
        plain = Contender("plain", plain_rounds.round)
        for name, (rule, _) in some.items():
            print(f"choice {choice + 1} of {given.choices}: measuring {name} ...", file=sys.stderr, flush=True)
            rounds = TurnoutRounds(task, rule, engine=engine)
            rounds.settle()
            turns[name].add(*paired(plain, Contender(name, rounds.round), repetitions=given.repetitions))
            rounds.close()
        plain_rounds.close()
        print(f"choice {choice + 1}: {plain_rounds.how()}")
    rows, figures = [], {}
    for name, (_, bar) in some.items():
        turn = turns[name]
        ratio, least, most = turn.ratios()
        met = "met" if ratio < bar else "NOT MET"
        rows.append([name, float(np.median(turn.taken)), ratio, f"{least:.2f} to {most:.2f}", f"< {bar:g}", met])
        figures[name] = {
            "seconds": turn.taken,
            "plain_seconds": turn.base,
            "times_plain": ratio,
            "by_choice": [least, most],
            "bar": bar,
            "met": ratio < bar,
        }
    seen = [turn.base for turn in turns.values()]
    print_table(
        f"W2, in turns with plain FedAvg, {np.median(seen):.4g} s a round",
        ["rule", "seconds", "times plain", "by choice", "bar", ""],
        rows,
    )
    ours, theirs, size = throughput(plan, 100, task.layout.size)
    speed = measure([ours, theirs], repetitions=11)
    share = speed["torch.mv"].median / speed["turnout"].median
    met = share >= LEAST_THROUGHPUT
    table = [[name, size / timing.median / 1e9] for name, timing in speed.items()]
    print_table(f"Combining 100 rows: {share:.2f} of torch.mv, bar {LEAST_THROUGHPUT:g}", ["", "GB a second"], table)
    figures["combine"] = {"share_of_mv": share, "bar": LEAST_THROUGHPUT, "met": met}
    write_json(given.json, {"plain_seconds": float(np.median(seen)), **figures})
    return 0 if all(figure["met"] for figure in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
