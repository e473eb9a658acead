"""One client in five attacks. Which way of combining answers keeps the model useful for the others?"""

import pandas as pd

import turnout as to
from turnout.aggregation import FedAvg, FLTrust, Krum, Median, MultiKrum, NormClipping, TrimmedMean
from turnout.attacks import (
    FreeRider,
    Gaussian,
    InnerProduct,
    LabelFlip,
    LittleIsEnough,
    ModelReplacement,
    NaN,
    ScaledUpdate,
    SignFlip,
)

SHARE = 0.2  # six of thirty attack
COHORT = 15
MOST = 5  # attackers in a cohort that Krum guards against

ATTACKS = {
    "nobody": FreeRider(fraction=0.0),
    "free-rider": FreeRider(fraction=SHARE),
    "NaN": NaN(fraction=SHARE),
    "label flip": LabelFlip(fraction=SHARE),
    "scaled update": ScaledUpdate(fraction=SHARE, scale=10.0),
    "Gaussian": Gaussian(fraction=SHARE, std=1.0),
    "sign flip": SignFlip(fraction=SHARE, scale=5.0),
    "model replacement": ModelReplacement(fraction=SHARE),
    "inner product": InnerProduct(fraction=SHARE, scale=5.0),
    "little is enough": LittleIsEnough(fraction=SHARE, shift=1.0),
}
DEFENCES = {
    "FedAvg": {"aggregation": FedAvg()},
    "median": {"aggregation": Median()},
    "trimmed mean": {"aggregation": TrimmedMean(fraction=0.35)},
    "Krum": {"aggregation": Krum(num_attackers=MOST)},
    "multi-Krum": {"aggregation": MultiKrum(num_attackers=MOST)},
    "norm clipping": {"aggregation": NormClipping()},
    "FLTrust": {"aggregation": FLTrust()},
    "low loss": {"selection": to.selection.LowLoss(cohort_size=COHORT, pool_size=30)},
}

study = to.Study(
    name="robustness",
    data=to.data.Digits(
        clients=30, holdout=0.2, server_samples=100, partition=to.data.partition.Dirichlet(concentration=1.0)
    ),
    model=to.models.MLP(hidden=(32,)),
    local=to.local.SGD(lr=0.05, batch_size=10, epochs=2),
    selection=to.selection.Uniform(cohort_size=COHORT),
    arms=[
        to.arm(f"{defence} / {attack}", attack=rule, **change)
        for attack, rule in ATTACKS.items()
        for defence, change in DEFENCES.items()
    ],
    rounds=40,
    seeds=3,
    evaluate=to.Cadence(every=40),
)


def accuracy_by_attack(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the honest clients' final accuracy in percent, an attack a row and a defence a column."""
    last = rounds[rounds["round"] == rounds["round"].max()]
    means = 100 * last.groupby("arm", sort=False)["benign_accuracy"].mean()
    means.index = pd.MultiIndex.from_tuples([tuple(arm.split(" / ")) for arm in means.index])
    return means.unstack(0).loc[list(ATTACKS), list(DEFENCES)]


if __name__ == "__main__":
    result = study.run()
    print("final accuracy of honest clients in percent, by attack (rows) and defence (columns); 10 is guessing\n")
    print(accuracy_by_attack(result.loaded.rounds).to_string(float_format="{:.0f}".format))
