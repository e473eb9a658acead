"""Every client holds about two of ten digits. What helps: a pull, controls, a bolder server, adaptive clients?"""

from dataclasses import replace

import turnout as to

local = to.local.SGD(lr=0.1, batch_size=20, epochs=5)
adagrad = to.local.Adagrad(lr=0.05, batch_size=20, epochs=5)
study = to.Study(
    name="unequal data",
    data=to.data.Digits(clients=20, partition=to.data.partition.Shards(per_client=2)),
    model=to.models.Softmax(),
    local=local,
    selection=to.selection.Uniform(cohort_size=10),
    aggregation=to.aggregation.FedAvg(weighting="mean"),
    arms=[
        to.arm("FedAvg"),
        to.arm("FedProx", local=replace(local, prox_strength=0.1)),
        to.arm("SCAFFOLD", local=replace(local, control="average")),
        to.arm("FedExP", server=to.server.FedExP()),
        to.arm("Adagrad at the clients", local=adagrad),
        to.arm(
            "Adagrad, jointly corrected",
            local=replace(adagrad, correction="joint"),
            aggregation=to.aggregation.Joint(weighting="mean"),
        ),
    ],
    rounds=15,
    seeds=4,
)

if __name__ == "__main__":
    print(study.run().table())
