"""Power-of-choice on clothes: sooner, better and fairer than random, the more so the less alike the clients are."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Bools, Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number
from turnout.reproduce.reading import at, average, clients, curve, rounds_to
from turnout.reproduce.shipped import About
from turnout.reproduce.studies.power_of_choice import worst_tenth

STRONG, SLOW = "alpha 0.3", "alpha 0.3 rate 0.0005"
MILD, MILD_SLOW = "alpha 2", "alpha 2 rate 0.0005"
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
    primary=tuple(
        (f"sooner {strong}", f"better {strong}", f"better {mild}")
        for strong, mild in ((STRONG, MILD), (SLOW, MILD_SLOW))
    ),
    most=29,
    first_seed=300,
    found="At a rate of 0.0005 d = 15 needs random's rounds divided by 1.4 (alpha 0.3) and ends 3.6 (alpha 0.3) and "
    "6.2 points ahead (alpha 2); at the authors' 0.005 it ends 4.4 and 0.6 points behind, because the clients that it "
    "chooses are alike.",
    caveat="Smaller than the paper's: a third of the images and 100 rounds. The effect was seen with alpha 2 at a rate "
    "of 0.0005, where d = 15 ends about 6 points ahead; with alpha 0.3 at 0.005 it is behind.",
    small="8 min",
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
        MILD_SLOW: ("data.partition.concentration=2.0", "local.lr=0.0005"),
    },
    notes=(
        "The paper's set-up with 100 clients, three a round, 30 local steps and its network (784-64-30-10), made "
        "smaller: 20,000 of the images, a fifth of each client's held out, mini-batches of 32 in place of 64, 100 "
        "rounds, and no dropout. Candidates are drawn in proportion to their data and the chosen count alike, as in "
        "the authors' code; it halves the rate from round 150 on, which is later than these runs end.",
        "The rate decides. The authors' launch script has 0.005; a published re-run (peng-ju/Power-of-Choice) needed "
        "0.0005 to see a gap, and each alpha is here at both. That re-run's own logs, one seed, 400 rounds, all 60,000 "
        "images: with alpha 2, d = 15 is at 56 % and random at 38 % after 40 rounds, and at 72.8 and 68.2 % over the "
        "last 20; with alpha 0.3 at 53 and 45 %, then at 68.4 and 69.7 %. Its test loss ends above random's in both "
        "(0.92 and 0.89; 1.00 and 0.89), as it does here: speed is judged by rounds to an accuracy, because a rule "
        "that ends with a higher loss than random's says nothing by never reaching random's. The two rates are two "
        "families of claims.",
        "Being behind at 0.005 and alpha 0.3, looked into on seeds 1000 to 1003: the three that d = 15 chooses are "
        "more alike than random's. Together they hold 5.3 classes and random's three 6.3 (the exponential of the "
        "entropy of their labels), the accuracy moves by 6.5 points from one measurement to the next and random's by "
        "4.5, and at the end d = 15 is 3.4 ± 2.7 points behind. More clients do not cure it: ten out of 50 candidates "
        "hold 6.6 classes and random's ten 8.6, the accuracy moves by 5.3 and 1.3 points, and they are 3.7 ± 2.0 "
        "behind. Nor do mini-batches of 64 (3.0 ± 2.9 behind). At a tenth of the rate the accuracy moves by 3.7 "
        "points, random's by 4.2, and d = 15 ends 2.9 ± 4.1 ahead. With alpha 2 the chosen hold 8.9 classes and "
        "random's three 9.1; there d = 15 ends 6.6 ± 2.5 ahead at 0.0005. Dropout, the authors' scaling of the inputs "
        "and 400 rounds were not tried.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold pow-d and its cheap forms against random selection."""
    found = [claim for cell, study in loaded.items() for claim in _of_cell(cell, study)]
    gains = {cell: _end(study, LARGE) - _end(study, RANDOM) for cell, study in loaded.items()}
    found += [
        above(
            Statement(
                id=f"more-when-unlike{rate}",
                text=f"the gain of d = 15 is larger with {unlike} than with {alike}",
                paper="larger",
                unit="points",
            ),
            gains[unlike] - gains[alike],
        )
        for unlike, alike, rate in ((STRONG, MILD, ""), (SLOW, MILD_SLOW, " rate 0.0005"))
    ]
    return found + [claim for cell, study in loaded.items() for claim in _numbers(cell, study)]


def _of_cell(cell: str, study: Loaded) -> list[Claim]:
    end = {arm: _end(study, arm) for arm in study.arms}
    faster, never = speedup(study)
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
        above(
            says("sooner", "rounds to the accuracy that random ends with, random ÷ d = 15", "up to 3", "×"),
            faster,
            1.0,
            never=never,
        ),
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


def speedup(study: Loaded) -> tuple[Floats, Bools]:
    """Return how many times the rounds of pow-d, d = 15, random needs for the accuracy that it ends with.

    The goal is the lowest of random's last accuracies, so that chance at the very end does not set it. The second array
    says in which seeds pow-d never got there.
    """
    goal = curve(study, RANDOM)[1][:, -LAST:].min(axis=1)
    return rounds_to(study, RANDOM, goal).ratio(rounds_to(study, LARGE, goal))


def _bytes_a_client(study: Loaded, arm: str) -> Floats:
    """Return the bytes of a whole run over how many were asked in it, by seed."""
    frame = study.rounds[study.rounds["arm"] == arm].groupby("seed")
    return np.asarray(frame["bytes"].sum() / frame["asked"].sum(), dtype=np.float64)
