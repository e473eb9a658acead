"""About one digit per client, and every second client does twenty times the work. Whose digits are learnt?"""

from dataclasses import replace

import turnout as to

local = to.local.SGD(lr=0.05, batch_size=10, effort=to.local.effort.ByTrace(traces=((20,), (1,))))
study = to.Study(
    name="unequal work",
    data=to.data.Digits(clients=20, partition=to.data.partition.Shards(per_client=1)),
    model=to.models.Softmax(),
    local=local,
    arms=[
        to.arm("FedAvg"),
        to.arm("FedProx", local=replace(local, prox_strength=1.0)),
        to.arm("FedNova", aggregation=to.aggregation.FedNova()),
        to.arm(
            "FedNova, momentum",
            local=replace(local, lr=0.01, momentum=0.9),
            aggregation=to.aggregation.FedNova(),
        ),
        to.arm("everyone does ten", local=replace(local, effort=None, steps=10)),
    ],
    rounds=30,
    seeds=4,
)

if __name__ == "__main__":
    print(study.run().table())
