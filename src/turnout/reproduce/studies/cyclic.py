"""Clients that come group by group, with three local solvers."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Bools, Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number
from turnout.reproduce.reading import curve, final, rounds_to
from turnout.reproduce.shipped import About

GROUPS = {"2 groups": 2, "5 groups": 5, "10 groups": 10}
SOLVERS = {
    "GD": (),
    "SGD": ('local.batches="replaced"', "local.batch_size=4"),
    "shuffled SGD": ('local.batches="shuffled"', "local.batch_size=4"),
}
ROUNDING = 1e-5  # of float32, in runs that are stacked in another order
SHARE = 0.9  # of the way that one group goes, for the loss to be reached
NO_MORE = 1.1  # "no more rounds": by a tenth at most

ABOUT = About(
    paper="Cho et al. 2023, cyclic participation figure",
    what="With K̄ groups in turn a given loss takes no more rounds than with clients drawn from everyone.",
    primary=(("rounds-10 GD", "rounds-10 SGD", "rounds-10 shuffled SGD", "shrinks"),),
    most=106,
    first_seed=300,
    found="With ten groups in turn a given loss takes 3 % fewer rounds than with clients drawn from everyone, with "
    "each of the three solvers; 106 seeds show no part of the gain that mini-batch noise eats, and none above 0.5 %.",
    small="5 min",
    scales={"smoke": ("rounds=4", "seeds=2"), "small": (), "paper": ()},
    cells=dict(SOLVERS),
    notes=(
        "The slide has curves without numbers, on EMNIST, and leaves out N, K and the rates. Here: scikit-learn's "
        "digits, 60 clients of two labels each, six asked per round, five local steps at 0.05, groups drawn at random; "
        'with K̄ = 10 a whole group takes part. The loss to be reached is 90 % of the way that one group goes. "No '
        'more rounds" allows a tenth.',
        "The gain is small, three rounds in a hundred with ten groups, and clear only there. Theory sets an order of "
        "1/T² against 1/T, but for small steps and many cycles; it says nothing about the first passes, which is what "
        "two hundred rounds are.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the groups against each other."""
    found, numbers = [], []
    ratios: dict[str, tuple[Floats, Bools]] = {}
    for solver in SOLVERS:
        study = loaded[solver]
        found += _one_group_is_standard(solver, study)
        start, end = curve(study, "1 group", "loss")[1][:, 0], final(study, "1 group", "loss")
        goal = start - SHARE * (start - end)
        needed = {arm: rounds_to(study, arm, goal, "loss", rises=False) for arm in ("1 group", *GROUPS)}
        for arm, groups in GROUPS.items():
            text = f"{solver}: rounds to a given loss, K̄ = {groups} ÷ K̄ = 1"
            says = Statement(id=f"rounds-{groups} {solver}", text=text, paper="≤ 1", unit="×")
            ratios[solver] = ratio, never = needed[arm].ratio(needed["1 group"])  # of the most groups, in the end
            found.append(below(says, ratio, NO_MORE, never=never))
            text = f"{solver}: final test loss, K̄ = {groups} − K̄ = 1"
            says = Statement(id=f"final-{groups} {solver}", text=text, paper="lower")
            numbers.append(number(says, final(study, arm, "loss") - end))
    said = Statement(
        id="shrinks", text="the ratio with K̄ = 10, SGD − GD: noise eats the gain", paper="above 0", unit="×"
    )
    (noisy, never), (exact, also_never) = ratios["SGD"], ratios["GD"]
    return [*found, above(said, noisy - exact, never=never | also_never), *numbers]


def _one_group_is_standard(solver: str, study: Loaded) -> list[Claim]:
    apart = np.abs(curve(study, "1 group", "loss")[1] - curve(study, "standard", "loss")[1]).max(axis=1)
    asked = [study.clients[study.clients["arm"] == arm] for arm in ("standard", "1 group")]
    keys = [list(zip(frame["seed"], frame["round"], frame["client"], strict=True)) for frame in asked]
    differing = float(len(set(keys[0]) ^ set(keys[1])))
    return [
        exactly(
            Statement(
                id=f"cohorts {solver}", text=f"{solver}: K̄ = 1 asks whom the standard run asks", paper="identical"
            ),
            np.full(len(apart), differing),
        ),
        exactly(
            Statement(
                id=f"one {solver}", text=f"{solver}: K̄ = 1 has the losses of the standard run", paper="identical"
            ),
            apart,
            ROUNDING,
        ),
    ]
