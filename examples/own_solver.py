"""A local solver of one's own: heavy-ball momentum that each client keeps from its last round to its next."""

# --8<-- [start:solver]
import torch

import turnout as to


class KeptMomentum:
    """SGD whose momentum buffer stays with the client between rounds."""

    keeps = ("velocity",)  # entries of the state below that a client keeps; zeros in its first round
    batch_size = 10  # the default is all local samples

    def __init__(self, lr: float, momentum: float) -> None:
        self.lr, self.momentum = lr, momentum

    def begin(self, params):
        """Return the state of the solver, one mapping per parameter; every tensor has the clients in front."""
        return [{"velocity": torch.zeros_like(param)} for param in params]

    def update(self, slot):
        """Move one parameter of all clients by one step, in place."""
        velocity = slot.state["velocity"][: len(slot.param)]  # clients that are done have dropped off the end
        velocity.mul_(self.momentum).add_(slot.grad)
        slot.param.sub_(velocity, alpha=slot.settings["lr"])


# --8<-- [end:solver]

# --8<-- [start:study]
study = to.Study(
    name="kept momentum",
    data=to.data.Digits(clients=20, partition=to.data.partition.Dirichlet(concentration=0.3)),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=1),
    selection=to.selection.Uniform(cohort_size=5),
    arms=[to.arm("SGD"), to.arm("kept momentum", local=KeptMomentum(lr=0.1, momentum=0.5))],
    rounds=20,
    seeds=3,
)
# --8<-- [end:study]

if __name__ == "__main__":
    print(study.run().table())
