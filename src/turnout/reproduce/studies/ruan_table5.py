"""How long dropping a departed device takes to pay off."""

from collections.abc import Mapping

import numpy as np
from scipy import stats

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, number
from turnout.reproduce.reading import Rounds, curve
from turnout.reproduce.shipped import About

SPREADS = ("0.1", "0.5", "1.0")  # α = β
DEPARTURES = tuple(range(10, 51, 5))  # τ₀
PATIENCE = 100
PAPER = {
    "0.1": (2, 5, 3, 3, 9, 3, 10, 26, 40),
    "0.5": (1, 3, 9, 14, 13, 7, 12, 36, 34),
    "1.0": (10, 9, 27, 18, 34, 17, 28, 62, 77),
}

ABOUT = About(
    paper="Ruan et al. 2021, Table 5 and Figure 4 (right)",
    what="Dropping a departed device costs at first and pays off later; how much later grows with when it left.",
    primary=((*(f"later {spread}" for spread in SPREADS), *(f"jump {spread}" for spread in ("0.1", "1.0")), "unlike"),),
    most=65,
    first_seed=300,
    found="A device that leaves costs test loss at first if it is excluded, and the later it left the longer; for "
    "the most unlike data the rank correlation is 0.18, where the paper's one run has 0.83.",
    small="8 min",
    scales={"smoke": ("rounds=12", "seeds=2", "local.steps=2"), "small": (), "paper": ()},
    cells={
        f"{spread} {departure}": (
            f"data.alpha={spread}",
            f"data.beta={spread}",
            f"fleet.membership.departures=[{{ client = 29, round = {departure} }}]",
            f"rounds={departure + PATIENCE}",
        )
        for spread in SPREADS
        for departure in DEPARTURES
    },
    notes=(
        "The paper's table is of one run each, and its own numbers are not in order either (10, 9, 27, 18, 34, 17, … "
        "at spread 1). The rank correlation with the time of leaving is above zero at every spread, and the smaller "
        "the more unlike the devices are.",
    ),
)


def crossed(loaded: Loaded, departure: int) -> Rounds:
    """Return the rounds from the departure until excluding has no more test loss; censored at PATIENCE + 1."""
    rounds, included = curve(loaded, "include", "loss")
    excluded = curve(loaded, "exclude", "loss")[1]
    after = rounds >= departure
    good = (excluded <= included)[:, after]
    waited = rounds[after] - departure + 1
    if not len(waited):
        return Rounds(np.full(len(included), PATIENCE + 1.0), np.ones(len(included), dtype=np.bool_))
    there = good.any(axis=1)
    return Rounds(np.where(there, waited[good.argmax(axis=1)], PATIENCE + 1.0), np.asarray(~there))


def jump(loaded: Loaded, departure: int) -> Floats:
    """Return how much more test loss excluding has right after the departure."""
    rounds, included = curve(loaded, "include", "loss")
    place = min(int(np.searchsorted(rounds, departure)), len(rounds) - 1)
    return np.asarray(curve(loaded, "exclude", "loss")[1][:, place] - included[:, place])


def trend(waits: list[Rounds]) -> Floats:
    """Return each seed's rank correlation of waiting times with the order of the list; 0 where they are all alike.

    Times that were never over share the highest rank.
    """
    table = np.array([wait.rounds for wait in waits]).T
    return np.array([0.0 if np.ptp(row) == 0 else stats.spearmanr(range(len(row)), row).statistic for row in table])


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold including against excluding."""
    waits = {spread: [crossed(loaded[f"{spread} {at}"], at) for at in DEPARTURES] for spread in SPREADS}
    first = {spread: [jump(loaded[f"{spread} {at}"], at) for at in DEPARTURES] for spread in SPREADS}
    found = []
    for spread in SPREADS:
        name = f"({spread}, {spread})"
        paper = stats.spearmanr(DEPARTURES, PAPER[spread]).statistic
        share = np.mean([~wait.never for wait in waits[spread]], axis=0)
        found += [
            above(
                Statement(id=f"jump {spread}", text=f"{name}: excluding costs at first (test loss)", paper="jumps up"),
                np.mean(first[spread], axis=0),
            ),
            above(
                Statement(id=f"crosses {spread}", text=f"{name}: the losses cross in most runs", paper="always"),
                share,
                0.5,
            ),
            above(
                Statement(
                    id=f"later {spread}",
                    text=f"{name}: the later it left, the longer (rank correlation)",
                    paper=f"{paper:.2f}",
                    value=float(paper),
                ),
                trend(waits[spread]),
            ),
        ]
    means = {spread: np.mean([wait.rounds for wait in waits[spread]], axis=0) for spread in SPREADS}
    never = np.any([wait.never for spread in ("0.1", "1.0") for wait in waits[spread]], axis=0)
    means_of_paper = {spread: float(np.mean(PAPER[spread])) for spread in SPREADS}
    found.append(
        above(
            Statement(
                id="unlike",
                text="the more unlike the data, the longer: (1, 1) − (.1, .1), mean over τ₀",
                paper=f"{means_of_paper['1.0'] - means_of_paper['0.1']:.1f}",
                value=means_of_paper["1.0"] - means_of_paper["0.1"],
                unit="rounds",
            ),
            means["1.0"] - means["0.1"],
            never=never,
        )
    )
    return found + [
        number(
            Statement(
                id=f"{spread}-{at}",
                text=f"({spread}, {spread}), τ₀ = {at}",
                paper=str(PAPER[spread][place]),
                unit="rounds",
            ),
            waits[spread][place].rounds,
            never=waits[spread][place].never,
        )
        for spread in SPREADS
        for place, at in enumerate(DEPARTURES)
    ]
