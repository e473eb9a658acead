"""What clients that never come cost FedAvg, by how many labels each client has."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number
from turnout.reproduce.reading import POINTS, average
from turnout.reproduce.safari import covered_share
from turnout.reproduce.shipped import About

LABELS = (10, 5, 2, 1)  # p
ABSENT = (0, 2, 4)  # s
PAPER = {(1, 0): "about 92", (1, 4): "57"}
NEGLIGIBLE = 2.0  # points: the paper's "no difference"
LAST = 3  # measurements that are averaged
TEST_DIGITS = np.array([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009])

ABOUT = About(
    paper="SA-FL (SAFARI), Figure 2",
    what="Clients that never come cost little where everyone has many labels, and their labels where each has one.",
    primary=(("lost", "more", "p1-p2", "negligible-10", "negligible-5"),),
    most=24,
    found="Where every client has one digit, four clients that never come cost 33 points (the paper: 35); with "
    "five digits each or more they cost less than one.",
    small="2 min",
    needs=("mnist",),
    scales={
        "smoke": ("rounds=3", "seeds=2", "data.samples=1000", "evaluate.every=1"),
        "small": (),
        "paper": ("rounds=2000",),
    },
    cells={f"p {labels}": (f"data.partition.labels_per_client={labels}",) for labels in LABELS},
    notes=(
        "The paper's set-up: ten clients, five a round drawn from those that can come, softmax regression on all of "
        "MNIST. Left open there and chosen here: five local steps of 32 samples with η_c = 0.005, 300 rounds (2000 at "
        "paper scale), the mean of the last three measurements, and s = 0, 2, 4.",
        'Data are dealt "evenly in a label-based partition": here every client has p labels, every label p clients, '
        "and which is which is drawn anew for each seed.",
        "On two seeds that are not reported, η_c = 0.002, 0.005 and 0.02 (400 rounds) gave 89.4, 90.1 and 89.7 % at p "
        "= 1, s = 0, and 56.4, 56.8 and 56.8 % at s = 4: what is lost does not depend on the rate.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold each number of absent clients against everyone being there."""
    accuracy = {
        (labels, absent): POINTS * average(loaded[f"p {labels}"], f"s = {absent}", last=LAST)
        for labels in LABELS
        for absent in ABSENT
    }
    lost = {key: accuracy[key[0], 0] - value for key, value in accuracy.items()}
    return [
        above(_says("lost", "p = 1: s = 4 loses against s = 0", "35", "points", 35.0), lost[1, 4]),
        above(_says("more", "p = 1: s = 4 loses more than s = 2", "falls with s", "points"), lost[1, 4] - lost[1, 2]),
        above(_says("p1-p2", "s = 4 loses more at p = 1 than at p = 2", "more", "points"), lost[1, 4] - lost[2, 4]),
        above(_says("p2-p5", "s = 4 loses more at p = 2 than at p = 5", "more", "points"), lost[2, 4] - lost[5, 4]),
        *(
            below(
                _says(f"negligible-{labels}", f"p = {labels}: s = 4 loses under 2 points", "negligible", "points"),
                lost[labels, 4],
                NEGLIGIBLE,
            )
            for labels in (10, 5)
        ),
        below(
            _says(
                "bound", "p = 1, s = 4: accuracy above the share of digits that anyone who comes has", "≤ 0", "points"
            ),
            _over(loaded["p 1"], accuracy[1, 4]),
        ),
        *(
            number(
                _says(
                    f"p {labels} s {absent}",
                    f"p = {labels}, s = {absent}: accuracy",
                    PAPER.get((labels, absent), "curve"),
                    "%",
                ),
                accuracy[labels, absent],
            )
            for labels in LABELS
            for absent in ABSENT
        ),
    ]


def _over(study: Loaded, accuracy: Floats) -> Floats:
    return accuracy - POINTS * covered_share(study, "s = 4", TEST_DIGITS)


def _says(id: str, text: str, paper: str, unit: str, value: float | None = None) -> Statement:
    return Statement(id=id, text=text, paper=paper, unit=unit, value=value)
