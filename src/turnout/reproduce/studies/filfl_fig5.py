"""Filtering before random selection on Shakespeare, with FedProx."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, our_own
from turnout.reproduce.filfl import (
    COMMON,
    FILTERS,
    MISLABELLED,
    PAPER,
    PAPER_ROLES,
    TINY,
    UNEQUAL_ROLES,
    WITH_HARM,
    gain,
    gain_id,
    gains_where_some_harm,
    numbers,
)
from turnout.reproduce.shipped import ONLY_CELL, About

NOT_RESET = "clients not reset"


def _not_reset_id(arm: str) -> str:
    return gain_id(arm, "FedProx", NOT_RESET)


ABOUT = About(
    paper=f"{PAPER}, Figure 5",
    what="A filter that reads other prose makes FedProx with random selection better on Shakespeare.",
    primary=(tuple(gain_id(arm, "FedProx") for arm in FILTERS), tuple(_not_reset_id(arm) for arm in FILTERS)),
    most=14,
    found="Filters gain nothing over FedProx. Where clients are not reset to the global model, as seems to be so "
    "in the authors' code, they gain 5.4 and 4.6 points, as in the paper: FedProx alone falls by ten.",
    caveat="Too small for the paper's gains of 3 and 6 points, whose network is a hundred times as large. A gain of "
    "that size was seen early in training: 3.3 points after 10 rounds.",
    small="6 min",
    needs=("shakespeare-plays",),
    scales={"smoke": TINY, "small": (), "paper": PAPER_ROLES},
    cells={**WITH_HARM, NOT_RESET: ('local.use="turnout.reproduce.not_reset:NotReset"',)},
    notes=(
        *COMMON,
        *UNEQUAL_ROLES,
        *MISLABELLED,
        "In FedProx mode the authors' code seems not to reset clients to the global model: each goes on from its own "
        "last one, which the proximal term alone pulls back. The cell “clients not reset” runs it like that, to test "
        "whether their gain comes of it.",
        "What a filter gives here is a head start: on seeds 1000 to 1002 the deterministic filter was 3.3 points above "
        "FedProx alone after 10 rounds, 2.3 after 20, 1.0 after 30 and 0.6 ± 0.8 at the end, the randomised one 1.5, "
        "1.6, 0.5 and 0.4 ± 0.8. Where learning is slowed down it lasts longer: with a rate of 0.2 they ended 1.6 ± "
        "1.9 and 1.3 ± 1.8 above. A gain of the paper's size is there if training is stopped early, and the paper's "
        "network, a hundred times as large, learns more slowly; that run takes days here and was not made.",
        "One thing changed at a time on the same seeds, deterministic and randomised filter above FedProx at the end: "
        "momentum 0.9, which the authors' code has, 0.9 ± 1.1 and 0.7 ± 1.1; two layers of 64 units −0.7 ± 1.0 and 0.7 "
        "± 0.4; three roles at a time 0.5 ± 1.7 and 0.5 ± 0.8 (4.0 and 1.4 after 20 rounds); 30 up and not 70 −0.4 ± "
        "1.2 and 0.3 ± 1.4. The notes of Figure 3 say what else was changed.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters against FedProx alone."""
    study = loaded[ONLY_CELL]
    said = {"DGF": 3.0, "RGF": 6.0}
    return [
        *(gain(study, arm, "FedProx", f"about {points:.0f}", value=points) for arm, points in said.items()),
        *(
            our_own(gain(loaded[NOT_RESET], arm, "FedProx", f"about {points:.0f}", NOT_RESET, points))
            for arm, points in said.items()
        ),
        *numbers(study, "FedProx"),
        *numbers(loaded[NOT_RESET], "FedProx", NOT_RESET),
        *gains_where_some_harm(loaded, said, "FedProx"),
    ]
