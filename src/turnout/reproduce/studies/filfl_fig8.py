"""How few sentences a filter can do with, on Shakespeare."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim
from turnout.reproduce.filfl import (
    COMMON,
    MISLABELLED,
    PAPER,
    PAPER_ROLES,
    TINY,
    UNEQUAL_ROLES,
    WHENCE,
    WITH_HARM,
    gain,
    gain_id,
    gains_where_some_harm,
    lower,
    numbers,
)
from turnout.reproduce.shipped import ONLY_CELL, About

SIZES = ("m = 34", "m = 17", "m = 8")

ABOUT = About(
    paper=f"{PAPER}, Figure 8",
    what="34, 17 or 8 windows of other prose: every filter beats none, and more windows generalise slightly better.",
    primary=((*(gain_id(arm, "FedAvg") for arm in SIZES), gain_id("m = 34", "m = 8")),),
    most=9,
    found="With 34, 17 or 8 windows of text at the server the filter ends 6 to 7 points above power-of-choice "
    "alone; nine seeds show no difference between them.",
    small="7 min",
    needs=("shakespeare-plays",),
    scales={"smoke": TINY, "small": (), "paper": PAPER_ROLES},
    cells=WITH_HARM,
    notes=(*COMMON, *UNEQUAL_ROLES, *MISLABELLED, *WHENCE),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the filters against none, and the largest set against the smallest."""
    study = loaded[ONLY_CELL]
    return [
        *(gain(study, arm, "FedAvg", "above 0") for arm in SIZES),
        gain(study, "m = 34", "m = 8", "slight"),
        lower(study, "m = 8", "m = 34", "lower", "training"),
        lower(study, "m = 34", "m = 8", "lower", "test"),
        *numbers(study, "FedAvg"),
        *gains_where_some_harm(loaded, SIZES, "FedAvg"),
    ]
