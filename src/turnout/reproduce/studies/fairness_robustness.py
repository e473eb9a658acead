"""Selection by loss: choosing the worst-off is fairer, choosing the best-off is safer against wrong labels."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number, our_own
from turnout.reproduce.reading import POINTS, clients, final
from turnout.reproduce.shipped import About
from turnout.reproduce.studies.power_of_choice import worst_tenth

HONEST = "nobody attacks"
SHARES = (20, 30, 40)  # per cent of the clients, with their labels reversed
RULES = ("random", "power-of-choice", "low loss")

ABOUT = About(
    paper="Joshi, slides on heterogeneity: open directions in client selection",
    what="Power-of-choice is fairer than random selection; low-loss selection is safer against wrong labels.",
    primary=(("spread", "worst", "20 low loss random", "30 low loss random", "40 low loss random"),),
    most=72,
    first_seed=300,
    found="Power-of-choice brings the worst tenth of the clients 3.5 points; low-loss selection gains 1.2 points "
    "with 20 % attackers and 5.0 with 30 %; with 40 % 72 seeds settle nothing, because some runs fall to the "
    "attackers.",
    small="3 min",
    needs=("fashion-mnist",),
    scales={
        "smoke": ("rounds=3", "seeds=2", "data.samples=2500"),
        "small": (),
        "paper": ("data.clients=100", "data.samples=60000", 'model={ use = "mlp", hidden = [64, 30] }', "rounds=500"),
    },
    cells={
        HONEST: ("attack.fraction=0.0", "data.partition.concentration=0.3"),
        **{f"{share} per cent attack": (f"attack.fraction={share / 100}",) for share in SHARES},
    },
    notes=(
        "The slides state both claims without a set-up. Here: 10,000 images of Fashion-MNIST, softmax regression, 50 "
        "clients, ten a round, chosen from 20 candidates, ten local steps of 20 samples, 150 rounds; Dirichlet(0.3) "
        "for fairness, Dirichlet(1) under attack. Attackers reverse their labels, y → 9 − y, all in the same way.",
        "The step matters for fairness: on two seeds that are not reported, with five a round and η_l = 0.01, "
        "power-of-choice was no fairer than random selection (spread 12.1 against 11.7 points); with ten a round and "
        "η_l = 0.002, on three, it was (9.6 against 11.1).",
        "Low-loss selection feeds on itself. With 40 % of the clients flipping labels alike, one unreported run in "
        "three fell to the attackers: once their model is ahead, they are the ones with the low loss.",
        "Clients with rare labels have high losses too: with Dirichlet(0.3), 20 % attackers and five a round, low-loss "
        "selection was behind random selection on unreported seeds (71.6 against 74.5 %).",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the two rules against random selection."""
    return [
        *_fairness(loaded[HONEST]),
        *(claim for share in SHARES for claim in _robustness(loaded[f"{share} per cent attack"], share)),
        *_numbers(loaded),
    ]


def _fairness(study: Loaded) -> list[Claim]:
    spread = {arm: POINTS * np.nanstd(clients(study, arm), axis=1) for arm in RULES}
    worst = {arm: POINTS * worst_tenth(clients(study, arm)) for arm in RULES}
    return [
        below(
            _says("spread", "spread of accuracy over clients: power-of-choice − random", "smaller"),
            spread["power-of-choice"] - spread["random"],
        ),
        above(
            _says("worst", "worst tenth of the clients: power-of-choice − random", "better"),
            worst["power-of-choice"] - worst["random"],
        ),
        *(
            number(_says(f"{kind} {arm}", f"{text}, {arm}", "–"), values[arm])
            for kind, text, values in (("spread of", "spread", spread), ("worst of", "worst tenth", worst))
            for arm in RULES
        ),
    ]


def _robustness(study: Loaded, share: int) -> list[Claim]:
    benign = {arm: POINTS * final(study, arm, "benign_accuracy") for arm in RULES}
    text = f"{share} % attack, accuracy of the others:"
    return [
        above(
            _says(f"{share} low loss random", f"{text} low loss − random", "better"),
            benign["low loss"] - benign["random"],
        ),
        our_own(
            above(
                _says(f"{share} random power-of-choice", f"{text} random − power-of-choice", "not said"),
                benign["random"] - benign["power-of-choice"],
            )
        ),
    ]


def _numbers(loaded: Mapping[str, Loaded]) -> list[Claim]:
    return [
        number(
            Statement(id=f"{cell} {arm}", text=f"{cell}: accuracy of the others, {arm}", paper="–", unit="%"),
            _of_the_others(study, arm),
        )
        for cell, study in loaded.items()
        for arm in RULES
    ]


def _of_the_others(study: Loaded, arm: str) -> Floats:
    return POINTS * final(study, arm, "benign_accuracy")


def _says(id: str, text: str, paper: str) -> Statement:
    return Statement(id=id, text=text, paper=paper, unit="points")
