"""An adaptive server step on a problem with more unknowns than equations."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number
from turnout.reproduce.reading import curve, final, rounds_to
from turnout.reproduce.shipped import About

REGRESSION = "regression"

ABOUT = About(
    paper="Jhunjhunwala et al. 2023, FedExP figure (linear regression)",
    what="A server step read off each round needs fewer rounds than FedAvg's to reach the same loss.",
    primary=(("fewer-rounds", "mostly-more", "smoother"),),
    most=24,
    found="FedExP reaches FedAvg's final loss 13 times as soon, with a server step above 1 in four rounds of five; "
    "with full gradients from everyone there is nothing for the mean of two iterates to smooth.",
    small="2 min",
    scales={"smoke": ("rounds=5", "seeds=2", "data.dim=50", "data.clients=5"), "small": (), "paper": ()},
    cells={REGRESSION: ()},
    notes=(
        "The authors' notebook: 20 clients with 30 samples each, 1000 unknowns, 20 full-gradient steps, 200 rounds; "
        "η_l is 0.1 there and 1.5 here. Its baselines have a tuned server rate of 10; here FedAvg has 1, which is what "
        "the claim is about. The images are a study of their own, fedexp-images.",
        "There is nothing to smooth here: everyone takes part with full gradients, and on seeds 1000 and 1001 the loss "
        "fell in every round, of both the last iterate and the mean of two, at η_l = 0.1, 0.5 and 1.5. The mean only "
        "lags by half a round, so its curve bends more in the first twenty; after them the two are alike.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold FedExP against FedAvg."""
    study = loaded[REGRESSION]
    goal = final(study, "FedAvg", "loss")  # what FedAvg has at the end
    needed = {arm: rounds_to(study, arm, goal, "loss", rises=False) for arm in ("FedAvg", "FedExP")}
    speedup, never = needed["FedAvg"].ratio(needed["FedExP"])
    rates = curve(study, "FedExP", "server_lr")[1]
    return [
        above(
            Statement(
                id="fewer-rounds",
                text="rounds FedAvg needs for its final loss, over those FedExP needs",
                paper="1.4 to 2",
                value=1.4,
                unit="×",
            ),
            speedup,
            1.0,
            never=never,
        ),
        below(
            Statement(id="lower", text="final training loss: FedExP ÷ FedAvg", paper="lower", unit="×"),
            final(study, "FedExP", "loss") / goal,
            1.0,
        ),
        exactly(
            Statement(id="at-least-one", text="η_g is never below 1 (by how much at most)", paper="η_g ≥ 1"),
            np.maximum(1.0 - rates.min(axis=1), 0.0),
        ),
        above(
            Statement(id="mostly-more", text="share of rounds with η_g > 1", paper="most rounds"),
            (rates > 1.0).mean(axis=1),
            0.5,
        ),
        below(
            Statement(
                id="smoother",
                text="the mean of the last two iterates swings less than the last (÷)",
                paper="smoother",
                unit="×",
            ),
            roughness(study, "FedExP") / roughness(study, "FedExP, last iterate"),
            1.0,
        ),
        number(Statement(id="rate", text="mean η_g over rounds", paper="> 1"), rates.mean(axis=1)),
        *(
            number(
                Statement(id=f"final-{arm}", text=f"final training loss, {arm}", paper="curve"),
                final(study, arm, "loss"),
            )
            for arm in ("FedAvg", "FedExP", "SCAFFOLD", "FedAdagrad")
        ),
    ]


def roughness(study: Loaded, arm: str) -> Floats:
    """Return the mean size of the second differences of the logarithm of the loss."""
    values = np.log(np.maximum(curve(study, arm, "loss")[1], 1e-30))
    return np.asarray(np.abs(np.diff(values, n=2, axis=1)).mean(axis=1))
