"""Filtering before random selection among writers, with FedProx; and where the gain comes from."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, our_own
from turnout.reproduce.filfl import (
    COMMON,
    FILTERS,
    HARMED,
    MISLABELLED,
    PAPER,
    PAPER_WRITERS,
    TINY,
    WRITERS,
    gain,
    gain_id,
    loss_id,
    lower,
    numbers,
    unclaimed_gain,
)
from turnout.reproduce.shipped import About

EARLY, LATE, WRONG = "rate 0.003", "rate 0.03", HARMED

ABOUT = About(
    paper=f"{PAPER}, Figure 4",
    what="A filter makes FedProx with random selection better on handwriting by writer.",
    primary=(
        (*(gain_id(arm, "FedProx") for arm in FILTERS), *(loss_id(arm, "FedProx", "training") for arm in FILTERS)),
    ),
    most=40,
    found="The filters end 0.6 and 1.0 points above FedProx, where the paper has 7 and 4; with three in ten "
    "clients mislabelled they gain 12 points, and at ten times the rate nothing.",
    caveat="Too small for the paper's gains of 7 and 4 points: MNIST by writer and an MLP with 32 hidden units stand "
    "in for FEMNIST and LEAF's network. A larger gain was seen only where three in ten clients are mislabelled.",
    small="2 min",
    needs=("mnist", "mnist-writers"),
    scales={"smoke": (*TINY, "data.server_samples=100"), "small": (), "paper": PAPER_WRITERS},
    cells={
        EARLY: (),
        LATE: ("local.lr=0.03",),
        WRONG: ("local.lr=0.03", 'attack={ use = "label-flip", fraction = 0.3 }'),
    },
    notes=(
        *COMMON,
        *WRITERS,
        *MISLABELLED,
        "The first cell has the authors' rate, 0.003, with which nothing has converged after thirty rounds; the second "
        "shows how much of the gain is left at ten times that rate.",
        "A first run had six seeds: gains of 0.7 and 1.0 points (authors' rate) and of 17 and 17 (mislabelled), none "
        "of them clear after correction over eight claims. Two of those, gains at the larger rate, are not the paper's "
        "and have become plain numbers, and there are ten seeds since.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters against FedProx alone: as the authors run it, and with wrong labels."""
    early, late, wrong = (loaded[cell] for cell in (EARLY, LATE, WRONG))
    said = {"DGF": 7.0, "RGF": 4.0}
    return [
        *(gain(early, arm, "FedProx", f"about {points:.0f}", value=points) for arm, points in said.items()),
        *(lower(early, arm, "FedProx", "lower", "training") for arm in FILTERS),
        *(our_own(gain(wrong, arm, "FedProx", "not in the paper", WRONG)) for arm in FILTERS),
        *(unclaimed_gain(late, arm, "FedProx", LATE) for arm in FILTERS),
        *numbers(early, "FedProx"),
        *numbers(late, "FedProx", LATE),
        *numbers(wrong, "FedProx", WRONG),
    ]
