"""Filtering before random selection against DivFL, on unevenly dealt photographs."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim
from turnout.reproduce.filfl import (
    COMMON,
    FILTERS,
    MISLABELLED,
    PAPER,
    PAPER_PHOTOGRAPHS,
    PHOTOGRAPHS,
    TINY,
    WITH_HARM,
    gain,
    gains_where_some_harm,
    lower,
    numbers,
    unclaimed_gain,
)
from turnout.reproduce.shipped import ALONE, About

ABOUT = About(
    paper=f"{PAPER}, Figure 6",
    what="A filter with random selection is better than DivFL, which trains lower and generalises worse.",
    small="1 min",
    needs=("cifar10",),
    scales={"smoke": (*TINY, "data.samples=1000"), "small": (), "paper": PAPER_PHOTOGRAPHS},
    cells=WITH_HARM,
    notes=(
        *COMMON,
        *PHOTOGRAPHS,
        *MISLABELLED,
        "DivFL is the one of its authors, with the gradients of everyone who is up in every round. FilFL's code "
        "has another rule under that name, which maximises the distances and adds them up over candidates.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters with random selection against DivFL."""
    study = loaded[ALONE]
    return [
        *(gain(study, arm, "DivFL", "about 10") for arm in FILTERS),
        *(lower(study, "DivFL", arm, "lower", "training") for arm in FILTERS),
        *(lower(study, arm, "DivFL", "lower", "test") for arm in FILTERS),
        *(unclaimed_gain(study, arm, "FedAvg") for arm in FILTERS),
        *numbers(study, "FedAvg"),
        *gains_where_some_harm(loaded, FILTERS, "DivFL"),
    ]
