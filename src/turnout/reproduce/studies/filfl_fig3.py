"""Filtering before power-of-choice on Shakespeare, by a few sentences that are not Shakespeare's."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim
from turnout.reproduce.filfl import (
    COMMON,
    EVERYONE_ASKED,
    FILTERS,
    MISLABELLED,
    NO_GAIN,
    PAPER,
    PAPER_ROLES,
    ROLES,
    TINY,
    WITH_HARM,
    gain,
    gains_where_some_harm,
    lower,
    numbers,
)
from turnout.reproduce.shipped import ALONE, About

ABOUT = About(
    paper=f"{PAPER}, Figure 3",
    what="A filter that reads 34 short windows of other prose makes power-of-choice better on Shakespeare.",
    small="3 min",
    needs=("shakespeare-plays",),
    scales={"smoke": TINY, "small": (), "paper": (*PAPER_ROLES, *EVERYONE_ASKED)},
    cells=WITH_HARM,
    notes=(*COMMON, *ROLES, *MISLABELLED, *NO_GAIN),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters against power-of-choice alone."""
    study = loaded[ALONE]
    return [
        *(gain(study, arm, "FedAvg", "about 10") for arm in FILTERS),
        *(lower(study, "FedAvg", arm, "lower after 200 rounds", "training") for arm in FILTERS),
        *numbers(study, "FedAvg"),
        *gains_where_some_harm(loaded, FILTERS, "FedAvg"),
    ]
