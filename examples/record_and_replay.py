"""Record a run, then try other rules on the same devices: the journal says who was up, how fast, and who failed.

The recorded run is simulated here, so that anybody can run this; the journal of a deployment is replayed the same way.
"""

import tempfile

import turnout as to

DEADLINE = 20.0  # seconds: the recorded server closed its rounds then


def study(name: str, fleet: to.Fleet, arms: tuple[to.Arm, ...] = ()) -> to.Study:
    """Return the study that is recorded, or one that replays it with these arms."""
    return to.Study(
        name=name,
        data=to.data.Digits(clients=40, partition=to.data.partition.Dirichlet(concentration=0.3, min_size=5)),
        model=to.models.Softmax(),
        selection=to.selection.Uniform(cohort_size=10),
        local=to.local.SGD(lr=0.1, batch_size=5, epochs=2),
        fleet=fleet,
        arms=arms,
        rounds=40,
        seeds=1,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        devices = to.Fleet(
            availability=to.fleet.Markov(join=0.3, leave=0.2),
            work=to.fleet.Stragglers(prob=0.1),
            clock=to.fleet.Deadline(
                seconds_per_step=to.fleet.Lognormal(median=1.0, sigma=0.8), deadline_seconds=DEADLINE
            ),
        )
        study("recorded", devices).run(folder)

        def replayed(**ending: float) -> to.Fleet:
            """Return the recorded devices, with rounds that the server ends in its own way."""
            return to.fleet.replay(run=folder, seed=0, **ending)

        arms = (
            to.arm("as recorded"),
            to.arm("FedNova", aggregation=to.aggregation.FedNova()),
            to.arm(
                "first 10 of 15", fleet=replayed(over_selection=1.5), selection=to.selection.Uniform(cohort_size=15)
            ),
        )
        result = study("replayed", replayed(deadline_seconds=DEADLINE), arms).run()
    print(result.table())
    rounds = result.loaded.rounds[result.loaded.rounds["round"] > 0]
    print("\nshare of the asked work that was recorded, and simulated minutes for all rounds:")
    by_arm = rounds.groupby("arm", sort=False)
    minutes = by_arm["sim_seconds"].sum() / 60 / rounds["seed"].nunique()
    print(by_arm[["replay_recorded"]].mean().assign(minutes=minutes).round(2).to_string())
