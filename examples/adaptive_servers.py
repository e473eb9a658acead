"""The clients do the same in every arm; only how the server moves the model differs."""

import turnout as to

study = to.Study(
    name="adaptive servers",
    data=to.data.Digits(clients=40, partition=to.data.partition.Dirichlet(concentration=0.1, min_size=2, top_up=True)),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.02, batch_size=10, epochs=1),
    selection=to.selection.Uniform(cohort_size=8),
    arms=[
        to.arm("server SGD"),
        to.arm("FedAvgM", server=to.server.FedAvgM(momentum=0.9)),
        to.arm("FedAdagrad", server=to.server.FedAdagrad(lr=0.1)),
        to.arm("FedAdam", server=to.server.FedAdam(lr=0.03)),
        to.arm("FedYogi", server=to.server.FedYogi(lr=0.03)),
        to.arm("FedExP", server=to.server.FedExP()),
    ],
    rounds=40,
    seeds=5,
)

if __name__ == "__main__":
    print(study.run().table())
