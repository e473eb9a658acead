"""A participation process for which every learner fails, and server data that repairs it."""

from collections.abc import Mapping

import numpy as np

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import About

FEW, MANY = "100 samples", "1000 samples"
LEARNERS = ("FedAvg", "FedNova", "FedProx", "SCAFFOLD", "FedVARP", "MIFA", "FedAdam", "power-of-choice")
CAPACITY = 0.6  # ω = m/M: six of ten clients ever come
BOUND = (1 - CAPACITY) / 8

ABOUT = About(
    paper="SA-FL (SAFARI), Theorem 1",
    what="Where the absent hold what no one else knows, every learner fails; a few server samples repair it.",
    primary=(("fails FedAvg", "often", "no-use", "repaired", "below"),),
    most=30,
    found="All eight learners err on about 0.22 with any number of samples, four times the bound of 0.05; 1000 server "
    "samples bring the error to 0.02. Each run was above the bound, so their share has no spread to test.",
    small="3 min",
    scales={"smoke": ("rounds=10", "seeds=2"), "small": (), "paper": ()},
    cells={FEW: (), MANY: ("data.samples=1000", "data.server_samples=1000")},
    notes=(
        "Theorem 1 is not an experiment. The process here: ten clients, each with inputs in a block of coordinates of "
        "its own, labelled by a half-space drawn for that client: a linear model without error exists, and nothing "
        "learnt in one block says anything about another. Four clients, drawn once per run, never come: ω = 6/10. What "
        "is seen of the other six is distributed alike for every target in the four absent blocks, so there a learner "
        "can only guess, and errs on half of 1 − ω in the mean.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold every learner against the bound."""
    error = {arm: 1.0 - final(loaded[FEW], arm) for arm in loaded[FEW].arms}
    with_more = {arm: 1.0 - final(loaded[MANY], arm) for arm in loaded[MANY].arms}
    found = [
        above(
            Statement(
                id=f"fails {arm}",
                text=f"{arm}: error above (1 − ω)/8",
                paper=f"> {BOUND:.2f}",
            ),
            error[arm],
            BOUND,
        )
        for arm in LEARNERS
    ]
    often = np.mean([error[arm] > BOUND for arm in LEARNERS], axis=0)
    return [
        *found,
        above(
            Statement(id="often", text="share of runs with an error above (1 − ω)/8, all learners", paper="> 1/20"),
            often,
            1 / 20,
        ),
        above(
            Statement(
                id="no-use", text="FedAvg with ten times the samples: error above (1 − ω)/8", paper="independent of n"
            ),
            with_more["FedAvg"],
            BOUND,
        ),
        below(
            Statement(
                id="repaired", text="SAFARI with 100 server samples: error below FedAvg's by", paper="PAC-learnable"
            ),
            error["SAFARI"] - error["FedAvg"],
        ),
        below(
            Statement(id="more", text="SAFARI with 1000 server samples: error below that with 100 by", paper="→ 0"),
            with_more["SAFARI"] - error["SAFARI"],
        ),
        below(
            Statement(id="below", text="SAFARI with 1000 server samples: error below (1 − ω)/8", paper="PAC-learnable"),
            with_more["SAFARI"],
            BOUND,
        ),
        number(
            Statement(id="guessing", text="FedAvg's error; guessing in the absent blocks would be 0.20", paper="–"),
            error["FedAvg"],
        ),
        number(
            Statement(id="everyone", text="FedAvg's error when everyone comes", paper="0 is possible"),
            error["everyone comes"],
        ),
    ]
