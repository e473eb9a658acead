"""The study of phones.toml, written in Python."""

import turnout as to

# --8<-- [start:study]
study = to.Study(
    name="phones",
    rounds=40,
    seeds=5,
    target={"accuracy": 0.8},
    data=to.data.Digits(clients=60, partition=to.data.partition.Dirichlet(concentration=0.1, min_size=2, top_up=True)),
    model=to.models.MLP(hidden=(64,)),
    fleet=to.Fleet(availability=to.fleet.Bernoulli(prob=0.3)),
    selection=to.selection.Uniform(cohort_size=10),
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=(1, 3)),
    arms=[
        to.arm("FedAvg", **to.algorithms.fedavg()),
        to.arm("FedProx", **to.algorithms.fedprox(prox_strength=0.1)),
        to.arm(
            "by size",
            selection=to.selection.Weighted(cohort_size=10),
            aggregation=to.aggregation.FedAvg(weighting="mean"),
        ),
    ],
)
# --8<-- [end:study]

if __name__ == "__main__":
    # --8<-- [start:run]
    result = study.run()
    print(result.table())
    print(result.verdict())
    # --8<-- [end:run]
    # --8<-- [start:frames]
    rounds = result.loaded.rounds  # one row per arm, seed and round
    print(rounds.groupby("arm")[["up", "asked", "answered"]].mean())
    # --8<-- [end:frames]
    # --8<-- [start:model]
    module = result.module("FedAvg", 0)  # arm and seed; ready to evaluate
    weights = result.state_dict("FedAvg", 0)  # or for module.load_state_dict
    # --8<-- [end:model]
