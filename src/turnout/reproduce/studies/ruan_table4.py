"""How long a model takes to get over a device that arrives, with and without a boost for it: SYNTHETIC, two rates."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Bools
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number
from turnout.reproduce.reading import Rounds, curve
from turnout.reproduce.shipped import About

ARRIVALS = (10, 30, 50, 70)  # τ₀
PATIENCE = 100  # rounds after the arrival
LITTLE = 3.0  # rounds: "little benefit"
PAPER = {10: (1, 1), 30: (4, 6), 50: (7, 12), 70: (3, 8)}  # rounds: fast, vanilla
RATES = {"rate 1": "1.0", "rate 0.1": "0.1"}  # η₀


def arrival_settings(newcomer: int, arrival: int) -> tuple[str, ...]:
    """Return the settings of a study in which one device arrives."""
    moves = f"fleet.membership.arrivals=[{{ client = {newcomer}, round = {arrival} }}]"
    return (moves, f"rounds={arrival + PATIENCE}")


ABOUT = About(
    paper="Ruan et al. 2021, Table 4 and Figure 4 (left), SYNTHETIC",
    what="After a device arrives, the accuracy from before is regained sooner with fast-reboot, if it is late.",
    primary=tuple((f"late {cell}", f"later {cell}", f"early {cell}") for cell in RATES),
    most=100,
    found="At a rate of 0.1 fast-reboot saves 1.7 rounds after late arrivals and none after early ones, as "
    "claimed; at the paper's rate of 1 it costs one round, since restarting the rate costs more than the "
    "arrival.",
    small="10 min",
    scales={"smoke": ("rounds=12", "seeds=2", "local.steps=2"), "small": (), "paper": ()},
    cells={
        f"{cell} arrival {arrival}": (f"local.lr={rate}", *arrival_settings(29, arrival))
        for cell, rate in RATES.items()
        for arrival in ARRIVALS
    },
    notes=(
        "The paper's table is of one run each. Over seeds the rounds to regain an accuracy spread by as much as their "
        "mean, because a small test set wobbles by more than what an arrival costs. So each device has 100 samples to "
        "train on and 100 to test with, and there are 60 seeds or more.",
        "The two rates are two families of claims. At the paper's η₀ = 1 with five local steps the benefit is "
        "contradicted on seeds that are not reported: an arrival restarts the rate η₀/τ, and that costs 20 points of "
        "accuracy in one round, where the arrival itself costs 2; counting the newcomer three times over deepens the "
        "fall. At η₀ = 0.1 the restart costs little, and all three claims held with 60 seeds.",
        "A run that does not regain its accuracy within 100 rounds is censored there, in both arms; the signed-rank "
        "test takes that into account.",
        "MNIST is a study of its own, ruan-table4-images.",
    ),
)


def regained(loaded: Loaded, arm: str, arrival: int) -> Rounds:
    """Return the rounds from the arrival until the accuracy of before is back; censored at PATIENCE + 1."""
    rounds, values = curve(loaded, arm)
    after = rounds >= arrival
    before = values[:, np.flatnonzero(~after)[-1]]
    good = values[:, after] >= before[:, None]
    waited = rounds[after] - arrival + 1
    if not len(waited):
        return Rounds(np.full(len(values), PATIENCE + 1.0), np.ones(len(values), dtype=np.bool_))
    there = good.any(axis=1)
    return Rounds(np.where(there, waited[good.argmax(axis=1)], PATIENCE + 1.0), np.asarray(~there))


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold fast against vanilla reboots, at each rate."""
    found = [reboot_claims(cell, {at: loaded[f"{cell} arrival {at}"] for at in ARRIVALS}, PAPER) for cell in RATES]
    return [claim for tested, _ in found for claim in tested] + [claim for _, numbers in found for claim in numbers]


def reboot_claims(
    cell: str, studies: Mapping[int, Loaded], paper: Mapping[int, tuple[int, int]]
) -> tuple[list[Claim], list[Claim]]:
    """Return the claims of one column of the table, and its numbers.

    Args:
        cell: the column's name.
        studies: the study of each arrival.
        paper: the paper's rounds of each arrival, fast and vanilla.
    """
    waits = {at: {arm: regained(study, arm, at) for arm in ("fast", "vanilla")} for at, study in studies.items()}
    saved = {at: wait["vanilla"].rounds - wait["fast"].rounds for at, wait in waits.items()}
    never = {at: wait["vanilla"].never | wait["fast"].never for at, wait in waits.items()}
    late = np.mean([saved[at] for at in ARRIVALS[1:]], axis=0)
    late_never: Bools = np.any([never[at] for at in ARRIVALS[1:]], axis=0)
    said = float(np.mean([paper[at][1] - paper[at][0] for at in ARRIVALS[1:]]))
    early = paper[10][1] - paper[10][0]

    def says(id: str, text: str, words: str, value: float | None = None) -> Statement:
        return Statement(id=f"{id} {cell}", text=f"{cell}: {text}", paper=words, value=value, unit="rounds")

    tested = [
        above(says("late", "late arrivals (τ₀ = 30 … 70): fast saves", f"{said:.1f}", said), late, never=late_never),
        above(
            says("later", "fast saves more at τ₀ = 30 … 70 than at 10", f"{said - early:.1f}", said - early),
            late - saved[10],
            never=late_never | never[10],
        ),
        below(says("early", "little benefit at τ₀ = 10: under 3", f"{early}"), saved[10], LITTLE, never=never[10]),
    ]
    numbers = [
        number(
            says(f"{arm}-{at}", f"τ₀ = {at}, {arm}: rounds to regain the accuracy", str(paper[at][place])),
            waits[at][arm].rounds,
            never=waits[at][arm].never,
        )
        for at in ARRIVALS
        for place, arm in enumerate(("fast", "vanilla"))
    ]
    return tested, numbers
