"""Clients leave: keep their data in the objective, or drop it? Both answers beside Ruan's rule for it."""

import turnout as to

study = to.Study(
    name="departures",
    data=to.data.Digits(
        clients=10, partition=to.data.partition.Dirichlet(concentration=0.2, min_size=5, top_up=True), holdout=0.2
    ),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.1, batch_size=10, steps=5),
    aggregation=to.aggregation.SchemeC(),
    fleet=to.Fleet(
        membership=to.fleet.Scheduled(
            departures={0: 10, 1: 56},  # client: the round before which it leaves
            arrivals={9: 30},
        ),
        work=to.fleet.RuanTraces(traces=5),
    ),
    arms=[
        to.arm("include", turnover=to.Turnover(on_departure="include")),
        to.arm("exclude", turnover=to.Turnover(on_departure="exclude")),
        to.arm("auto", turnover=to.Turnover(on_departure="auto", departure_constant=2.0)),
    ],
    rounds=60,
    seeds=3,
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())
    print("accuracy is on the hold-outs of those in the objective, so the arms are not measured on the same clients")
    rounds = result.loaded.rounds
    for row in rounds[(rounds["seed"] == 0) & rounds["events"].astype(bool)].itertuples():
        print(f"{row.arm:8} round {row.round:2}   accuracy {row.accuracy:.3f}   {'; '.join(row.events)}")
