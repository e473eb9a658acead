"""What personal models cost beside plain FedAvg, on W1 and W2. python -m benchmarks.personal [--json FILE].

A round of Ditto trains two models, so it may cost a little more than two rounds of FedAvg; FedPer trains one. As in
`benchmarks.rules`, everything is measured several times with fresh choices of how to run, rules in turns with plain
FedAvg, and the median of all ratios is held against the bar. Rules without a bar are printed beside the gradients that
they compute. Fine-tuning is measured with an evaluation of every client after each round, and so is the plain round
beside it. Processor time is printed as well: it says more on a busy machine. Exit code 0 when every bar is met.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.models import build
from benchmarks.quiet import own_seconds
from benchmarks.reporting import print_table, write_json
from benchmarks.rules import Turns
from benchmarks.timing import Contender, paired
from benchmarks.turnout_rounds import TurnoutRounds, plan_of
from benchmarks.workloads import WORKLOADS, Workload, samples
from turnout import losses
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import Moreau
from turnout.personal import APFL, Ditto, FineTune, Layers
from turnout.personal import Moreau as InnerSolution

KEPT = {"W1": ("0.bias",), "W2": ("4",)}  # what FedPer and FedRep keep: in W2 the last layer; W1 has but one
INNER_STEPS = 5  # of pFedMe
HELD_OUT = 20  # samples of each client that its model is evaluated on
OF_CLIENTS = Cadence(clients_every=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A personal rule, and what it is measured beside."""

    name: str
    plan: Plan
    base: Plan
    gradients: float  # as many times as the plain round has
    bar: float | None = None  # times the plain round's seconds, at most


@dataclass(slots=True)
class Processor:
    """Rounds, and the processor time that they took."""

    rounds: TurnoutRounds
    taken: list[float] = field(default_factory=list)

    def round(self) -> None:
        """Do a round."""
        begin = own_seconds()
        self.rounds.round()
        self.taken.append(own_seconds() - begin)


def variants(work: Workload, plan: Plan) -> Iterator[Variant]:
    """Yield what is measured on a workload."""
    kept, steps = KEPT[work.name], work.local_steps
    kept_first = Layers(keep=kept, order="kept-first", kept_steps=steps)
    yield Variant(name="Ditto", plan=replace(plan, personal=Ditto()), base=plan, gradients=2, bar=2.2)
    yield Variant(name="FedPer", plan=replace(plan, personal=Layers(keep=kept)), base=plan, gradients=1, bar=1.1)
    yield Variant(name="FedRep", plan=replace(plan, personal=kept_first), base=plan, gradients=2)
    yield Variant(name="APFL", plan=replace(plan, personal=APFL()), base=plan, gradients=2)
    moreau = Moreau(lr=work.lr, batch_size=work.batch_size, epochs=work.epochs, inner_steps=INNER_STEPS)
    inner = replace(plan, local=moreau, personal=InnerSolution())
    yield Variant(name="pFedMe", plan=inner, base=plan, gradients=INNER_STEPS)
    each = replace(plan, evaluate=OF_CLIENTS)
    tuned = replace(each, personal=FineTune(steps=steps))
    yield Variant(name="fine-tune, evaluated", plan=tuned, base=each, gradients=2)


def task_of(work: Workload) -> Task:
    """Return the workload with a hold-out at each client."""
    x, y = map(torch.from_numpy, samples(work))
    held = [(inputs[:HELD_OUT], labels[:HELD_OUT]) for inputs, labels in zip(x, y, strict=True)]
    federation = from_clients(list(zip(x, y, strict=True)), num_classes=work.num_classes, holdout=held)
    return Task(federation=federation, module=build(work), loss=losses.cross_entropy)


def measure(work: Workload, choices: int, repetitions: int) -> dict[str, dict[str, object]]:
    """Measure all rules on a workload, and print and return the figures."""
    task = task_of(work)
    some = list(variants(work, replace(plan_of(work), layout=task.layout)))
    turns, processor = ({variant.name: Turns() for variant in some} for _ in range(2))
    for choice in range(choices):
        engine = None
        for variant in some:
            print(f"{work.name}, choice {choice + 1} of {choices}: {variant.name} ...", file=sys.stderr, flush=True)
            plain = Processor(TurnoutRounds(task, variant.base, engine=engine))
            engine = plain.rounds.engine  # rules that share a solver share what was measured for it, as in one study
            other = Processor(TurnoutRounds(task, variant.plan, engine=engine))
            plain.rounds.settle()
            other.rounds.settle()
            both = Contender("plain", plain.round), Contender(variant.name, other.round)
            turns[variant.name].add(*paired(*both, repetitions=repetitions))
            processor[variant.name].add(plain.taken[1:], other.taken[1:])  # without the warm-up
            plain.rounds.close()
            other.rounds.close()
    figures: dict[str, dict[str, object]] = {}
    rows = []
    for variant in some:
        turn, (ratio, least, most) = turns[variant.name], turns[variant.name].ratios()
        of_processor = processor[variant.name].ratios()[0]
        met = variant.bar is None or ratio < variant.bar
        bar = "" if variant.bar is None else f"< {variant.bar:g}"
        verdict = "" if variant.bar is None else "met" if met else "NOT MET"
        seconds = [float(np.median(values)) for values in (turn.base, turn.taken)]
        rows.append(
            [variant.name, *seconds, ratio, f"{least:.2f} to {most:.2f}", of_processor, variant.gradients, bar, verdict]
        )
        figures[variant.name] = {
            "seconds": turn.taken,
            "plain_seconds": turn.base,
            "times_plain": ratio,
            "by_choice": [least, most],
            "times_plain_processor": of_processor,
            "times_plain_gradients": variant.gradients,
            "bar": variant.bar,
            "met": met,
        }
    header = ["rule", "plain s", "seconds", "times plain", "by choice", "processor", "gradients", "bar", ""]
    print_table(f"{work.name}, in turns with plain FedAvg", header, rows)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=sorted(KEPT), default=sorted(KEPT))
    parser.add_argument("--choices", type=int, default=5, help="fresh choices of how to run")
    parser.add_argument("--repetitions", type=int, default=12, help="pairs of rounds for each")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    figures = {name: measure(WORKLOADS[name], given.choices, given.repetitions) for name in given.workloads}
    write_json(given.json, figures)
    return 0 if all(figure["met"] for some in figures.values() for figure in some.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
