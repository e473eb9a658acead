"""Only three of thirty clients answer a round. Does remembering what the others last sent calm the model down?"""

import turnout as to

study = to.Study(
    name="variance reduction",
    data=to.data.Digits(clients=30, partition=to.data.partition.Shards(per_client=1)),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.05, batch_size=10, epochs=2),
    selection=to.selection.Uniform(cohort_size=3),
    arms=[
        to.arm("FedAvg", aggregation=to.aggregation.FedAvg(weighting="mean")),
        to.arm("FedVARP", aggregation=to.aggregation.FedVARP()),
        to.arm("ClusterFedVARP", aggregation=to.aggregation.ClusterFedVARP(num_clusters=10, clusters="labels")),
        to.arm("MIFA", aggregation=to.aggregation.MIFA()),
    ],
    rounds=60,
    seeds=5,
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())
    held = result.loaded.rounds.groupby("arm", sort=False)["memory_bytes"].max().fillna(0)
    print("bytes the server remembers: " + "; ".join(f"{arm} {size:,.0f}" for arm, size in held.items()))
