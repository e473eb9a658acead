"""Labels that turn round at different times at different clients: one model, FedDrift, and an oracle."""

import turnout as to

study = to.Study(
    name="drift",
    data=to.data.ConceptDrift(task="sine", pattern="A", rounds_per_step=10),
    model=to.models.MLP(hidden=(4,)),
    local=to.local.SGD(lr=0.5, batch_size=50, steps=5),
    arms=[
        to.arm("one model"),
        to.arm("FedDrift", assignment=to.assignment.Drift(threshold=0.2)),
        to.arm("oracle", assignment=to.assignment.Concept(num_models=2)),
    ],
    rounds=100,
    seeds=3,
    evaluate=to.Cadence(clients_every=10),  # at the end of each time step, for the report
)

if __name__ == "__main__":
    result = study.run()
    print(result.table())
    for arm in ("FedDrift", "oracle"):
        models = [
            by_client.astype(int).tolist() for _, by_client in result.loaded.round_by_client("assignment", arm, 0)
        ]
        print(f"{arm}: the model of each client in the last round, seed 0: {models[-1]}")
