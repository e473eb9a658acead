"""Half of the devices are ten times slower. What does a round cost if slow devices train narrow models?"""

import turnout as to

seconds = tuple(1.0 if device % 2 == 0 else 10.0 for device in range(10))
study = to.Study(
    name="widths",
    data=to.data.Digits(clients=10, partition=to.data.partition.Dirichlet(concentration=1.0)),
    model=to.models.MLP(hidden=(64,)),
    local=to.local.SGD(lr=0.3, batch_size=20, epochs=1),
    fleet=to.Fleet(clock=to.fleet.Deadline(seconds_per_step=seconds, down_bandwidth=2e4, up_bandwidth=1e4)),
    arms=[
        to.arm("FedAvg, whole model"),
        to.arm("HeteroFL by speed", **to.algorithms.heterofl(rates=(1.0, 0.125), assign="by-speed")),
        to.arm("FedRolex by speed", **to.algorithms.fedrolex(rates=(1.0, 0.125), assign="by-speed")),
        to.arm("FjORD by speed", **to.algorithms.fjord(rates=(1.0, 0.5, 0.125), assign="by-speed")),
        to.arm("Federated Dropout, half", **to.algorithms.federated_dropout(rates=(0.5,))),
    ],
    rounds=20,
    seeds=3,
)

if __name__ == "__main__":
    print(study.run().table())
