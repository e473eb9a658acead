"""Local solvers and a plan with which engines are compared."""

from turnout.coordinator import Cadence, Plan
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.selection import Uniform

SOLVERS = {
    "plain": SGD(lr=0.1, batch_size=7, epochs=(1, 3)),
    "momentum": SGD(lr=0.1, batch_size=7, steps=(2, 9), momentum=0.9),
    "everything": SGD(
        lr=0.1, batch_size=7, epochs=2, momentum=0.5, weight_decay=0.01, prox_strength=0.3, lr_decay=0.9, clip_norm=0.7
    ),
    "pulled": SGD(lr=0.1, batch_size=7, epochs=2, weight_decay=0.01, prox_strength=0.3, lr_decay=0.9),
    "rolling": SGD(lr=0.1, batch_size=7, epochs=2, momentum=0.5, weight_decay=0.01, prox_strength=0.3, lr_decay=0.9),
    "controlled": SGD(lr=0.1, batch_size=7, epochs=2, control="average"),
    "controlled-rolling": SGD(lr=0.1, batch_size=7, steps=4, control="average", momentum=0.5, prox_strength=0.1),
    "replaced": SGD(lr=0.1, batch_size=7, steps=5, batches="replaced"),
    "full": SGD(lr=0.1, steps=3, batches="full"),
}


def plan(local: SGD, rounds: int = 3) -> Plan:
    return Plan(
        local=local,
        rounds=rounds,
        fleet=Fleet(availability=Bernoulli(prob=0.8)),
        selection=Uniform(cohort_size=5),
        evaluate=Cadence(every=1),
    )
