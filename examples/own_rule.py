"""A selection rule of one's own: ask those that found it hardest when they were last heard from."""

from dataclasses import dataclass

import numpy as np

import turnout as to
from turnout.array_types import Ids
from turnout.protocols import Ask, Choice, View


# --8<-- [start:rule]
@dataclass(frozen=True)
class HardestFirst:
    """K clients with the largest loss when last heard from."""

    cohort_size: int  # K

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the K hardest of the pool."""
        need = np.nan_to_num(view.last_losses[pool], nan=np.inf)  # those never heard from come first
        return Choice.of(pool[np.argsort(-need, kind="stable")[: self.cohort_size]])


# --8<-- [end:rule]
# --8<-- [start:study]
study = to.Study(
    data=to.data.Digits(clients=50, partition=to.data.partition.Shards(per_client=2)),
    model=to.models.Softmax(),
    fleet=to.Fleet(availability=to.fleet.Bernoulli(prob=0.5)),
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=2),
    arms=[
        to.arm("uniform", selection=to.selection.Uniform(cohort_size=5)),
        to.arm("hardest first", selection=HardestFirst(cohort_size=5)),
    ],
    rounds=40,
    seeds=5,
)
# --8<-- [end:study]

if __name__ == "__main__":
    print(study.run().table())
