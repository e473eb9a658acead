"""Every client holds about two of ten digits. Does a model of its own beat fine-tuning the shared one?"""

import turnout as to

LAST_LAYER = ("3.*",)  # names of the parameters of the last layer, as in the module

study = to.Study(
    name="personal models",
    data=to.data.Digits(clients=20, partition=to.data.partition.Shards(per_client=2), holdout=0.25),
    model=to.models.MLP(hidden=(32,)),
    local=to.local.SGD(lr=0.1, batch_size=10, steps=10),
    selection=to.selection.Uniform(cohort_size=10),
    arms=[
        to.arm("fine-tuning", **to.algorithms.fine_tuning()),  # what every other method must beat
        to.arm("Ditto", **to.algorithms.ditto()),
        to.arm("APFL", **to.algorithms.apfl()),
        to.arm("FedPer", **to.algorithms.fedper(keep=LAST_LAYER)),
        to.arm("FedRep", **to.algorithms.fedrep(keep=LAST_LAYER)),
    ],
    rounds=30,
    seeds=3,
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())  # of the shared models
    frame = result.loaded.personal
    last = frame[(frame["round"] == study.rounds) & (frame["measure"] == "personal accuracy")]
    by_seed = last.groupby(["arm", "seed"])["value"].mean().unstack("seed")
    print("\nAccuracy of clients' own models on their hold-outs, mean over clients")
    print((100 * by_seed).round(1).to_string())
