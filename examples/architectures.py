"""Clients have small models of two architectures. Can the server have a larger one, or each client its own?"""

import turnout as to

small, medium = to.models.MLP(hidden=(16,)), to.models.MLP(hidden=(32, 16))
family = to.models.Family(server=to.models.MLP(hidden=(64, 16)), clients=(small, medium))
own = to.width.Architectures()  # half of the clients have the small model, half the medium one
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
        to.arm("COMET, own models", model=family, width=own, **to.algorithms.comet(clusters=3)),
        to.arm("every client alone", model=family, width=own, **to.algorithms.comet(strength=0.0)),
    ],
    rounds=10,
    seeds=1,
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())  # COMET and alone are not compared: their accuracy is of clients' own models on hold-outs
    frame = result.loaded.client_accuracy  # comparable: all arms on clients' hold-outs
    last = frame[frame["round"] == study.rounds]
    print("\nAccuracy on clients' hold-outs of the model that each would use, mean over clients, in %")
    print((100 * last.groupby("arm", sort=False)["accuracy"].mean()).round(1).to_string())
    module = result.module("COMET, own models", seed=0, client=3)
    print(f"\nClient 3 has a model with {sum(each.numel() for each in module.parameters()):,} parameters")
    sent = result.loaded.rounds.groupby("arm", sort=False)["bytes"].sum() / 1e6
    print("\nMegabytes sent, both ways")
    print(sent.round(2).to_string())
