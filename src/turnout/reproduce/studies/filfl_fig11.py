"""How close a greedy filter comes to the best of all subsets."""

from collections.abc import Mapping

import numpy as np

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, exactly, number
from turnout.reproduce.filfl import COMMON, FILTERS, PAPER, PAPER_PHOTOGRAPHS, PHOTOGRAPHS, TINY
from turnout.reproduce.reading import curve
from turnout.reproduce.shipped import ONLY_CELL, About

ABOUT = About(
    paper=f"{PAPER}, Figure 11",
    what="Both filters find subsets whose reward is at least 0.96 of the best there is.",
    primary=(tuple(f"ratio {arm}" for arm in FILTERS),),
    most=24,
    found="Even in the worst look of a run both filters find a subset with 0.99 of the best reward; the paper has "
    "0.96.",
    small="1 min",
    needs=("cifar10",),
    scales={
        "smoke": (*TINY, "data.samples=1000", "fleet.availability.size=5"),
        "small": (),
        "paper": PAPER_PHOTOGRAPHS,
    },
    notes=(*COMMON, *PHOTOGRAPHS),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the worst look of each run against the paper's ratio, and put the plain ratio of losses beside it."""
    study = loaded[ONLY_CELL]
    found, numbers = [], []
    for arm in FILTERS:
        reward, loss = (curve(study, arm, metric)[1] for metric in ("reward_ratio", "loss_ratio"))
        found += [
            above(
                Statement(id=f"ratio {arm}", text=f"{arm}: R(kept) ÷ R(best) in the worst look", paper="≥ 0.96"),
                reward.min(axis=1),
                0.96,
            ),
            exactly(
                Statement(id=f"bound {arm}", text=f"{arm}: by how much a kept set beats the best", paper="0"),
                np.maximum(reward.max(axis=1) - 1.0, 0.0),
            ),
        ]
        numbers += [
            number(
                Statement(id=f"plain {arm}", text=f"{arm}: F_V(best) ÷ F_V(kept), mean over looks", paper="not said"),
                loss.mean(axis=1),
            ),
            number(
                Statement(id=f"worst {arm}", text=f"{arm}: F_V(best) ÷ F_V(kept), worst look", paper="not said"),
                loss.min(axis=1),
            ),
        ]
    return found + numbers
