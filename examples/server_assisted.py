"""Four of ten clients never come, and each holds a digit of its own. How much do 100 samples at the server repair?"""

import torch

import turnout as to
from turnout.assist import Safari
from turnout.fleet import Never

MISSING = 4

study = to.Study(
    data=to.data.Digits(clients=10, partition=to.data.partition.KLabels(labels_per_client=1), server_samples=100),
    model=to.models.Softmax(),
    fleet=to.Fleet(availability=Never(count=MISSING)),
    local=to.local.SGD(lr=0.05, batch_size=20, steps=5),
    selection=to.selection.Uniform(cohort_size=5),
    aggregation=to.aggregation.FedAvg(weighting="mean"),
    arms=[
        to.arm("clients alone"),
        to.arm("SAFARI", assist=Safari(lr=0.5, client_prob=0.5, batch_size=20)),
        to.arm("server alone", assist=Safari(lr=0.5, client_prob=0.0, batch_size=20)),
    ],
    rounds=200,
    seeds=3,
    evaluate=to.Cadence(every=10),
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(study.run().table())
    print(
        f"\n{MISSING} of 10 digits are held by clients that never come: alone, the others reach {10 - MISSING} in 10."
    )
