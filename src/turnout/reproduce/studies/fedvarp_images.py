"""Remembering what absent clients last sent, where the model is a network: the slides' order of rules."""

from collections.abc import Mapping

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, number
from turnout.reproduce.reading import POINTS, average
from turnout.reproduce.shipped import About
from turnout.reproduce.studies.fedvarp import HELD, ends

NETWORK = "LeNet-5"
LAST = 3  # measurements that are averaged

ABOUT = About(
    paper="Jhunjhunwala et al. 2022, FedVARP figures (slides)",
    what="On photographs, with a network, remembered changes beat FedAvg and SCAFFOLD where few clients answer.",
    small="8 min",
    needs=("cifar10",),
    scales={
        "smoke": ("rounds=4", "seeds=2", "data.samples=1000", "local.steps=2", "evaluate.every=2"),
        "small": (),
        "paper": ("rounds=1000", "data.clients=250", 'data.samples="none"'),
    },
    cells={NETWORK: ()},
    notes=(
        "The slides' curves are CIFAR-10 with LeNet-5 and ResNet-18, 250 clients and 1,000 rounds. Here 10,000 of its "
        "images, 100 clients by Dirichlet(0.1), five a round, ten local steps of 10 samples, LeNet-5, 120 rounds.",
        "The rate was chosen for FedAvg, on seeds from 1000: about round 150 it was at 30 % with η_l = 0.02 and at 33 "
        "% with 0.05. FedVARP was ahead of both others at both.",
        "The slides do not say how many clusters there are. Ten, by k-means of the label distributions, are too few "
        "for clients by Dirichlet(0.1), whose labels are never quite alike: on seeds 1000 to 1002 ClusterFedVARP was "
        "at 32.4 ± 1.2 % in rounds 80 to 120 with 10 clusters, 32.9 ± 1.0 with 30 and 35.1 ± 0.6 with 50, and FedVARP, "
        "which has one a client, at 37.4 ± 0.7. The more alike the clients of a cluster are, the nearer it comes.",
        "The loss of FedVARP takes smaller steps in the mean (p = 0.03), which five seeds and five tests do not make "
        "clear.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the rules that remember against those that do not."""
    study = loaded[NETWORK]
    return [
        *ends(study, NETWORK, LAST),
        *(
            number(
                Statement(id=f"accuracy {arm}", text=f"accuracy, {arm}", paper="curve", unit="%"),
                POINTS * average(study, arm, last=LAST),
            )
            for arm in HELD
        ),
    ]
