"""Filtering before power-of-choice on Shakespeare, by a few sentences that are not Shakespeare's."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, number
from turnout.reproduce.filfl import (
    COMMON,
    FILTERS,
    MISLABELLED,
    PAPER,
    PAPER_ROLES,
    TINY,
    UNEQUAL_ROLES,
    WHENCE,
    WITH_HARM,
    accuracy,
    gain,
    gain_id,
    gains_where_some_harm,
    loss_id,
    lower,
    numbers,
    unclaimed_gain,
)
from turnout.reproduce.shipped import ONLY_CELL, About

RANDOM = "random selection"
ASKED = Statement(
    id="selection",
    text="test accuracy without a filter, power-of-choice − random selection",
    paper="not said",
    unit="points",
)
ABOUT = About(
    paper=f"{PAPER}, Figure 3",
    what="A filter that reads 34 short windows of other prose makes power-of-choice better on Shakespeare.",
    primary=((*(gain_id(arm, "FedAvg") for arm in FILTERS), *(loss_id("FedAvg", arm, "training") for arm in FILTERS)),),
    most=14,
    found="The filters end 6 to 7 points above power-of-choice alone, which picks short roles; random selection is "
    "as good without a filter, and training losses are of whoever was picked.",
    small="7 min",
    needs=("shakespeare-plays",),
    scales={"smoke": TINY, "small": (), "paper": PAPER_ROLES},
    cells={**WITH_HARM, RANDOM: ('selection={ use = "uniform", cohort_size = 7 }',)},
    notes=(*COMMON, *UNEQUAL_ROLES, *MISLABELLED, *WHENCE),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters against power-of-choice alone."""
    study = loaded[ONLY_CELL]
    return [
        *(gain(study, arm, "FedAvg", "about 10", value=10.0) for arm in FILTERS),
        *(lower(study, "FedAvg", arm, "lower after 200 rounds", "training") for arm in FILTERS),
        *numbers(study, "FedAvg"),
        *gains_where_some_harm(loaded, FILTERS, "FedAvg"),
        number(ASKED, accuracy(study, "FedAvg") - accuracy(loaded[RANDOM], "FedAvg")),
        *(unclaimed_gain(loaded[RANDOM], arm, "FedAvg", RANDOM) for arm in FILTERS),
        *numbers(loaded[RANDOM], "FedAvg", RANDOM),
    ]
