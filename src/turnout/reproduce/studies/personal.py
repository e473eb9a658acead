"""Personal models against FedAvg and against fine-tuning, on writers, on people and on clients with two labels."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, exactly, number, our_own
from turnout.reproduce.reading import POINTS, at, clients, final
from turnout.reproduce.shipped import About

SHARED, TUNED = "FedAvg", "fine-tuning"
DITTO, APFL, FEDPER, FEDREP, PFEDME, META = "Ditto", "APFL", "FedPer", "FedRep", "pFedMe", "Per-FedAvg"
PERSONAL = (DITTO, APFL, FEDPER, FEDREP, PFEDME, META)
CELLS = ("labels", "writers", "people")
SAME_PATH = (TUNED, DITTO, APFL)  # arms whose shared model is FedAvg's
# of a loss: sums over rows of a block are taken in another order, and a unit whose input is nearly 0 may then switch on
EARLY, ROUNDING = 25, 1e-3

ABOUT = About(
    paper="Collins et al. 2021 (FedRep), Arivazhagan et al. 2019 (FedPer), Li et al. 2021 (Ditto), Deng et al. 2020",
    what="Whether models of their own serve clients better than the shared model, tuned for them or not.",
    primary=(
        ("FedRep labels", "FedPer labels", "APFL labels", "Ditto people"),
        ("FedRep labels tuned", "Ditto people tuned"),
    ),
    most=10,
    caveat="Much smaller than the papers': one hidden layer of 64 units, 100 rounds, 21 to 60 clients.",
    found="Clients' own models beat FedAvg's by 17 points with two labels a client and by 1 to 5 on writers and on "
    "people, and none was shown to beat 30 steps of fine-tuning.",
    small="7 min",
    needs=("fashion-mnist", "mnist-writers", "mnist", "hapt"),
    scales={
        "smoke": ("rounds=10", "seeds=2"),
        "small": (),
        "paper": ("rounds=500", "seeds=10", "model.hidden=[200,200]"),
    },
    cells={
        "labels": (),
        "writers": ('data={use="mnist-writers", clients=60, holdout=0.25}', "local.lr=0.1"),
        "people": ('data={use="hapt", holdout=0.25}', "local.lr=0.1"),
    },
    notes=(
        "The accuracy is that of the model which a client uses, on its own hold-out, mean over clients: with APFL the "
        "mixture, with FedAvg the shared model. Clients that were never asked count too.",
        "The papers compare with FedAvg. That a personal model must beat fine-tuning is our demand, and the claims on "
        "it are ours. Fine-tuning takes 30 steps and costs nothing in training; every arm has the same rounds.",
        "The learning rate and one setting of each method were chosen among two to five values on two other seeds, on "
        "labels and people: Ditto's strength, APFL's share, the number of tuning steps, the rates of pFedMe and "
        "Per-FedAvg. Writers have the settings of people. Per-FedAvg takes ten steps before its model is used; the "
        "paper takes one, which was worse.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Compare the accuracy of the models that clients use, on their own hold-outs."""
    found = []
    for cell in CELLS:
        study = loaded[cell]
        accuracy = {arm: used(study, arm) for arm in (SHARED, TUNED, *PERSONAL)}
        for arm in PERSONAL:
            found.append(
                above(
                    _says(f"{arm} {cell}", f"{cell}: {arm} − FedAvg", "better"),
                    accuracy[arm] - accuracy[SHARED],
                )
            )
            found.append(
                our_own(
                    above(
                        _says(f"{arm} {cell} tuned", f"{cell}: {arm} − FedAvg with fine-tuning", "–"),
                        accuracy[arm] - accuracy[TUNED],
                    )
                )
            )
        found += [
            number(_says(f"accuracy {arm} {cell}", f"{cell}: {arm}", "–", "%"), accuracy[arm]) for arm in accuracy
        ]
        found += [
            our_own(
                exactly(
                    _says(
                        f"path {arm} {cell}",
                        f"{cell}: loss of the shared model, {arm} − FedAvg, round {EARLY}",
                        "0",
                        "",
                    ),
                    at(study, arm, EARLY, "loss") - at(study, SHARED, EARLY, "loss"),
                    ROUNDING,
                )
            )
            for arm in SAME_PATH
        ]
    return found


def used(study: Loaded, arm: str) -> Floats:
    """Return each seed's accuracy of the models that clients use, on their own hold-outs, mean over clients."""
    if arm == SHARED:
        return np.asarray(POINTS * np.nanmean(clients(study, arm), axis=1))
    return POINTS * final(study, arm, "mixture_accuracy" if arm == APFL else "personal_accuracy")


def _says(id: str, text: str, predicted: str, unit: str = "points") -> Statement:
    return Statement(id=id, text=text, paper=predicted, unit=unit)
