"""Power-of-choice on clothes: sooner, better and fairer than random, the more so the less alike the clients are."""

from collections.abc import Mapping

import numpy as np

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number
from turnout.reproduce.reading import at, average, clients, curve, rounds_to
from turnout.reproduce.shipped import About
from turnout.reproduce.studies.power_of_choice import worst_tenth
from turnout.streams import Floats

STRONG, SLOW, MILD = "alpha 0.3", "alpha 0.3 rate 0.0005", "alpha 2"
RANDOM, SMALL, LARGE, CHEAP, REMEMBERED = (
    "random",
    "pow-d, d = 6",
    "pow-d, d = 15",
    "cpow-d, d = 15",
    "rpow-d, d = 50",
)
EARLY = 0.4  # of the rounds
LAST = 4  # measurements that the end of a curve is averaged over

ABOUT = About(
    paper="Cho et al. 2022, power-of-choice figures (Fashion-MNIST)",
    what="Choosing the worst-off of d candidates needs fewer rounds, also where losses are only estimated.",
    small="7 min",
    needs=("fashion-mnist",),
    scales={
        "smoke": ("rounds=3", "seeds=2", "data.samples=3000", "local.steps=3"),
        "small": (),
        "paper": ("rounds=500", "data.samples=60000"),
    },
    cells={
        STRONG: ("data.partition.concentration=0.3",),
        SLOW: ("data.partition.concentration=0.3", "local.lr=0.0005"),
        MILD: ("data.partition.concentration=2.0",),
    },
    notes=(
        "The paper's set-up with 100 clients, three a round, 30 local steps and its network (784-64-30-10), made "
        "smaller: 20,000 of the images, a fifth of each client's held out, mini-batches of 32 in place of 64, 100 "
        "rounds, and no dropout.",
        "The rate matters. The authors' launch script has 0.005; a published re-run needed 0.0005 to see a gap, which "
        "is the second cell. On seeds 1000 to 1002 with 0.0005 d = 15 was 12 points above random after 40 rounds of "
        "120 and 3 below after all of them, and its test loss was above random's in every round looked at; with "
        "0.002, and on two of these seeds with 0.005, it was not ahead at the end either. A likely reason, not "
        "tested: the three worst-off clients of a round hold few of the classes, and the model swings between them.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold pow-d and its cheap forms against random selection."""
    found = [claim for cell, study in loaded.items() for claim in _of_cell(cell, study)]
    gains = {cell: _end(study, LARGE) - _end(study, RANDOM) for cell, study in loaded.items()}
    found.append(
        above(
            Statement(
                id="more-when-unlike",
                text="the gain of d = 15 is larger with alpha 0.3 than with alpha 2",
                paper="larger",
                unit="points",
            ),
            gains[STRONG] - gains[MILD],
        )
    )
    return found + [claim for cell, study in loaded.items() for claim in _numbers(cell, study)]


def _of_cell(cell: str, study: Loaded) -> list[Claim]:
    end = {arm: _end(study, arm) for arm in study.arms}
    fairness = {arm: 100.0 * np.nanstd(clients(study, arm), axis=1) for arm in (RANDOM, LARGE)}
    worst = {arm: 100.0 * worst_tenth(clients(study, arm)) for arm in (RANDOM, LARGE)}

    def says(id: str, text: str, paper: str, unit: str = "points") -> Statement:
        return Statement(id=f"{id} {cell}", text=f"{cell}: {text}", paper=paper, unit=unit)

    early = {arm: 100.0 * at(study, arm, max(1, int(EARLY * rounds(study)))) for arm in (RANDOM, LARGE)}
    return [
        above(
            says("early", "accuracy after two fifths of the rounds, d = 15 − random", "> 0"),
            early[LARGE] - early[RANDOM],
        ),
        above(says("sooner", "rounds to random's final loss, random ÷ d = 15", "up to 3", "×"), speedup(study), 1.0),
        above(says("better", "accuracy at the end, d = 15 − random", "up to 10"), end[LARGE] - end[RANDOM]),
        above(says("larger-d", "accuracy at the end, d = 15 − d = 6", "higher"), end[LARGE] - end[SMALL]),
        above(says("cpow", "accuracy at the end, cpow-d − random", "higher"), end[CHEAP] - end[RANDOM]),
        above(says("rpow", "accuracy at the end, rpow-d − random", "higher"), end[REMEMBERED] - end[RANDOM]),
        below(
            says("fair", "spread of accuracy over clients, d = 15 − random", "smaller"),
            fairness[LARGE] - fairness[RANDOM],
        ),
        above(says("worst", "worst tenth of the clients, d = 15 − random", "better"), worst[LARGE] - worst[RANDOM]),
        exactly(
            says("free", "rpow-d sends no byte that asking the same clients would not", "none extra", "bytes"),
            _bytes_a_client(study, REMEMBERED) - _bytes_a_client(study, RANDOM),
        ),
    ]


def rounds(study: Loaded) -> int:
    """Return how many rounds a run has."""
    return int(curve(study, RANDOM)[0][-1])


def _numbers(cell: str, study: Loaded) -> list[Claim]:
    return [
        number(
            Statement(id=f"end {cell} {arm}", text=f"{cell}, {arm}: accuracy at the end", paper="curve", unit="%"),
            _end(study, arm),
        )
        for arm in study.arms
    ]


def _end(study: Loaded, arm: str) -> Floats:
    return 100.0 * average(study, arm, last=LAST)


def speedup(study: Loaded) -> Floats:
    """Return how many times the rounds of pow-d, d = 15, random needs for the loss that it ends with.

    The goal is the highest of random's last losses, so that chance at the very end does not set it.
    """
    goal = curve(study, RANDOM, "loss")[1][:, -LAST:].max(axis=1)
    needed = {arm: np.maximum(rounds_to(study, arm, goal, "loss", rises=False), 1) for arm in (RANDOM, LARGE)}
    return needed[RANDOM] / needed[LARGE]


def _bytes_a_client(study: Loaded, arm: str) -> Floats:
    """Return the bytes of a whole run over how many were asked in it, by seed."""
    frame = study.rounds[study.rounds["arm"] == arm].groupby("seed")
    return np.asarray(frame["bytes"].sum() / frame["asked"].sum(), dtype=np.float64)
