"""Clients leave a model that serves them worse than their own. Which way of combining updates keeps them?"""

import pandas as pd

import turnout as to

ALONE = {"epochs": 3, "lr": 0.02}  # how each client trains the model that the shared one has to beat

study = to.Study(
    name="incentives",
    data=to.data.Digits(
        clients=30, holdout=0.25, partition=to.data.partition.Dirichlet(concentration=0.3, min_size=8, top_up=True)
    ),
    model=to.models.Softmax(),
    fleet=to.Fleet(availability=to.fleet.Appealed(warmup_rounds=10, patience=2, **ALONE)),
    local=to.local.SGD(lr=0.05, batch_size=10, epochs=2),
    selection=to.selection.Uniform(cohort_size=10),
    arms=[
        to.arm("FedAvg", aggregation=to.aggregation.FedAvg(weighting="mean")),
        to.arm("MaxFL", aggregation=to.aggregation.Appeal(**ALONE)),
        to.arm("q-FFL", aggregation=to.aggregation.QFFL(power=1.0, weighting="mean")),
        to.arm("TERM", aggregation=to.aggregation.Tilted(tilt=1.0, weighting="mean")),
        to.arm("agnostic", aggregation=to.aggregation.Agnostic(rate=0.1)),
    ],
    rounds=40,
    seeds=3,
    evaluate=to.Cadence(every=40),
)


def served(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return, by arm, how many clients are served and available in the last ten rounds, and the final accuracy."""
    late = rounds[rounds["round"] > rounds["round"].max() - 10].groupby("arm", sort=False)
    last = rounds[rounds["round"] == rounds["round"].max()].groupby("arm", sort=False)
    columns = {"served, %": 100 * late["appeal"].mean(), "available of 30": late["up"].mean()}
    return pd.DataFrame(columns | {"final accuracy, %": 100 * last["accuracy"].mean()})


if __name__ == "__main__":
    result = study.run()
    print("clients that the model serves better than their own, and those that stay for it; mean over seeds\n")
    print(served(result.loaded.rounds).to_string(float_format="{:.0f}".format))
