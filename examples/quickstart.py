"""Does it pay to ask everyone who is up, rather than five of them?"""

import turnout as to

study = to.Study(
    data=to.data.Digits(clients=100, partition=to.data.partition.Shards(per_client=2)),  # about two digits each
    model=to.models.MLP(hidden=(64,)),
    fleet=to.Fleet(availability=to.fleet.Bernoulli(prob=0.3)),  # up in three rounds of ten
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=2),
    arms=[to.arm("ask five", selection=to.selection.Uniform(cohort_size=5)), to.arm("ask everyone")],
    rounds=40,
    seeds=5,
)
print(study.run().table())
