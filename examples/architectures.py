"""Clients have small models of two architectures. Can the server have a larger one, or each client its own?"""

import turnout as to

small, medium = to.models.MLP(hidden=(16,)), to.models.MLP(hidden=(32, 16))
family = to.models.Family(server=to.models.MLP(hidden=(64, 16)), clients=(small, medium))
study = to.Study(
    name="architectures",
    data=to.data.Digits(
        clients=20, partition=to.data.partition.Dirichlet(concentration=0.3), holdout=0.25, public_samples=200
    ),
    model=small,
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=2),
    arms=[
        to.arm("FedAvg, small model"),
        to.arm("Fed-ET, server's model", model=family, **to.algorithms.fed_et(distil_lr=0.02)),
        to.arm("COMET, own models", **to.algorithms.comet(clusters=3)),
        to.arm("every client alone", **to.algorithms.comet(strength=0.0)),
    ],
    rounds=10,
    seeds=1,
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())  # accuracy on the test set; of COMET and alone, of each client's model on its own hold-out
    frame = result.loaded.client_accuracy  # comparable: all arms on clients' hold-outs
    last = frame[frame["round"] == study.rounds]
    print("\nAccuracy on clients' hold-outs of the model that each would use, mean over clients, in %")
    print((100 * last.groupby("arm", sort=False)["accuracy"].mean()).round(1).to_string())
    sent = result.loaded.rounds.groupby("arm", sort=False)["bytes"].sum() / 1e6
    print("\nMegabytes sent, both ways")
    print(sent.round(2).to_string())
