"""Filtering before random selection against DivFL, on unevenly dealt photographs, at several rates."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above
from turnout.reproduce.filfl import (
    COMMON,
    FILTERS,
    HARMED,
    LARGE_PHOTOGRAPHS,
    MISLABELLED,
    PAPER,
    PHOTOGRAPHS,
    TINY,
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

KEPT, SMALLER = "rate never cut", "rate 0.05"
SMALL_RATE = ("local={ lr = 0.05, momentum = 0.0, weight_decay = 0.0 }", 'local.schedule="constant"')

ABOUT = About(
    paper=f"{PAPER}, Figure 6",
    what="A filter with random selection is better than DivFL, which trains lower and generalises worse.",
    primary=(
        (
            *(gain_id(arm, "DivFL") for arm in FILTERS),
            *(loss_id("DivFL", arm, "training") for arm in FILTERS),
            *(loss_id(arm, "DivFL", "test") for arm in FILTERS),
        ),
    ),
    most=64,
    first_seed=300,
    found="The filters end 2.8 and 1.9 points above DivFL, where the paper has about 10; 64 seeds do not settle "
    "which loss is lower at the end, because a few runs diverge with and without a filter.",
    caveat="Too small for the paper's ten points: an MLP on blocks of 4×4 pixels for a ResNet-18. A gain of that size "
    "was seen only where DivFL's rate is never cut, which is what the authors' code compares with.",
    small="6 min",
    needs=("cifar10",),
    scales={"smoke": (*TINY, "data.samples=1000"), "small": (), "paper": LARGE_PHOTOGRAPHS},
    cells={
        ONLY_CELL: (),
        KEPT: ('local.schedule="constant"',),
        SMALLER: SMALL_RATE,
        HARMED: (*SMALL_RATE, 'attack={ use = "label-flip", fraction = 0.3 }'),
    },
    notes=(
        *COMMON,
        *PHOTOGRAPHS,
        *MISLABELLED,
        "Rate, momentum and weight decay are the authors' (0.1, 0.9, 1e-4). Their code cuts the filters' rate to a "
        "tenth at rounds 30, 60, 90, 120 and 160, while its script for DivFL all but keeps it (× 0.998 every ten "
        "rounds). The first claims cut both; the two against DivFL “whose rate is never cut” compare as it does.",
        "The gain comes with the rate. At 0.05 without momentum there is none. At the authors' rate what has no filter "
        "is unstable (DivFL ends between chance and the filters' level). A first run of six seeds had gains of 9 "
        "points, which were lucky: 14 fresh seeds had 1.6 ± 3.7 over DivFL and 3 over FedAvg, with a clearly lower "
        "test loss. Where DivFL's rate is never cut the gains were 10.2 ± 5.8 and 10.4 ± 2.0 on four other seeds.",
        "DivFL is the one of its authors, with the gradients of everyone who is up in every round. FilFL's code has "
        "another rule under that name, which takes the models that lie farthest apart and keeps their clients for five "
        "rounds. On four other seeds it ended 4.0 ± 2.4 points below DivFL at rate 0.05 and 6.2 ± 4.2 below at 0.1 "
        "never cut, where the filters with the cut were 16 ± 3 points above it.",
        "A first run had rate 0.05 without momentum as its main cell: gains of 0.0 and −0.7 points, and none of eight "
        "claims held. Its gains are plain numbers since, and the mislabelled cell still has that rate, with which this "
        "small network learns best.",
        "The authors' rate was taken up after that run, when other seeds showed larger gains with it; the seeds "
        "reported are new ones.",
        "A test loss above 5 at the end had 3 of 64 runs of DivFL, 2 of the deterministic filter, 1 of random "
        "selection and none of the randomised filter. In one of the two the filter let nobody through from round 36 "
        "on, at a test loss of 331; its training loss is that of the last round in which clients took part.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold both filters with random selection against DivFL: at the same rates, and at those of the authors' code."""
    study, kept, smaller = (loaded[cell] for cell in (ONLY_CELL, KEPT, SMALLER))
    return [
        *(gain(study, arm, "DivFL", "about 10", value=10.0) for arm in FILTERS),
        *(lower(study, "DivFL", arm, "lower", "training") for arm in FILTERS),
        *(lower(study, arm, "DivFL", "lower", "test") for arm in FILTERS),
        *(_against_kept(study, kept, arm) for arm in FILTERS),
        *(unclaimed_gain(study, arm, "FedAvg") for arm in FILTERS),
        *(unclaimed_gain(kept, arm, "DivFL", KEPT) for arm in FILTERS),
        *(unclaimed_gain(smaller, arm, "DivFL", SMALLER) for arm in FILTERS),
        *numbers(study, "FedAvg"),
        *numbers(kept, "FedAvg", KEPT),
        *numbers(smaller, "FedAvg", SMALLER),
        *gains_where_some_harm(loaded, FILTERS, "DivFL"),
    ]


def _against_kept(cut: Loaded, kept: Loaded, arm: str) -> Claim:
    """Claim that a filter, whose rate is cut, beats DivFL, whose rate is not: what the authors' code compares."""
    text = f"test accuracy, {arm} − DivFL whose rate is never cut"
    says = Statement(id=f"code | {text}", text=text, paper="about 10", unit="points")
    return above(says, accuracy(cut, arm) - accuracy(kept, "DivFL"))
