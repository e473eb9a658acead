"""What people search for: named algorithms, each a function that returns one choice per axis.

In Python `Study(…, **turnout.algorithms.scaffold(lr=0.1, epochs=2))` or `turnout.arm("SCAFFOLD", **…)`; in a study file
`recipe = { use = "scaffold", lr = 0.1, epochs = 2 }`. The groups below are the list of algorithms, in the order in
which people learn them.
"""

from turnout.algorithms.adacomm import adacomm
from turnout.algorithms.afl import afl
from turnout.algorithms.agnostic_fl import agnostic_fl
from turnout.algorithms.algorithm import Algorithm, Sections
from turnout.algorithms.apfl import apfl
from turnout.algorithms.cluster_fedvarp import cluster_fedvarp
from turnout.algorithms.comet import comet
from turnout.algorithms.cpow_d import cpow_d
from turnout.algorithms.ditto import ditto
from turnout.algorithms.divfl import divfl
from turnout.algorithms.dp_fedavg import dp_fedavg
from turnout.algorithms.fed_et import fed_et
from turnout.algorithms.fedadagrad import fedadagrad
from turnout.algorithms.fedadam import fedadam
from turnout.algorithms.fedavg import fedavg
from turnout.algorithms.fedavgm import fedavgm
from turnout.algorithms.fedbabu import fedbabu
from turnout.algorithms.fedbn import fedbn
from turnout.algorithms.fedbuff import fedbuff
from turnout.algorithms.feddrift import feddrift
from turnout.algorithms.feddrift_eager import feddrift_eager
from turnout.algorithms.federated_dropout import federated_dropout
from turnout.algorithms.fedexp import fedexp
from turnout.algorithms.fednova import fednova
from turnout.algorithms.fednova_hybrid import fednova_hybrid
from turnout.algorithms.fednova_momentum import fednova_momentum
from turnout.algorithms.fednova_prox import fednova_prox
from turnout.algorithms.fednova_vr import fednova_vr
from turnout.algorithms.fedper import fedper
from turnout.algorithms.fedprox import fedprox
from turnout.algorithms.fedrep import fedrep
from turnout.algorithms.fedrolex import fedrolex
from turnout.algorithms.fedvarp import fedvarp
from turnout.algorithms.fedyogi import fedyogi
from turnout.algorithms.filfl import filfl
from turnout.algorithms.fine_tuning import fine_tuning
from turnout.algorithms.fjord import fjord
from turnout.algorithms.fltrust import fltrust
from turnout.algorithms.heterofl import heterofl
from turnout.algorithms.ifca import ifca
from turnout.algorithms.krum import krum
from turnout.algorithms.lg_fedavg import lg_fedavg
from turnout.algorithms.local_adagrad import local_adagrad
from turnout.algorithms.local_adam import local_adam
from turnout.algorithms.local_yogi import local_yogi
from turnout.algorithms.low_loss import low_loss
from turnout.algorithms.maxfl import maxfl
from turnout.algorithms.median import median
from turnout.algorithms.mifa import mifa
from turnout.algorithms.multi_krum import multi_krum
from turnout.algorithms.norm_clipping import norm_clipping
from turnout.algorithms.oort import oort
from turnout.algorithms.optimal_client_sampling import optimal_client_sampling
from turnout.algorithms.per_fedavg import per_fedavg
from turnout.algorithms.pfedme import pfedme
from turnout.algorithms.power_of_choice import power_of_choice
from turnout.algorithms.q_ffl import q_ffl
from turnout.algorithms.rpow_d import rpow_d
from turnout.algorithms.safari import safari
from turnout.algorithms.scaffold import scaffold
from turnout.algorithms.scaffold_exp import scaffold_exp
from turnout.algorithms.scheme_a import scheme_a
from turnout.algorithms.scheme_b import scheme_b
from turnout.algorithms.scheme_c import scheme_c
from turnout.algorithms.slowmo import slowmo
from turnout.algorithms.term import term
from turnout.algorithms.trimmed_mean import trimmed_mean

GROUPS = {
    "Start here": (fedavg, fedprox, scaffold, fednova),
    "Server optimisers": (fedavgm, slowmo, fedadagrad, fedadam, fedyogi, fedexp, scaffold_exp),
    "Unequal and unfinished work": (
        fednova_momentum,
        fednova_prox,
        fednova_vr,
        fednova_hybrid,
        adacomm,
        scheme_a,
        scheme_b,
        scheme_c,
    ),
    "Adaptive optimisers at the clients": (local_adagrad, local_adam, local_yogi),
    "Clients that are away": (fedvarp, cluster_fedvarp, mifa, safari, fedbuff),
    "Client selection and filtering": (
        power_of_choice,
        cpow_d,
        rpow_d,
        low_loss,
        afl,
        oort,
        divfl,
        optimal_client_sampling,
        filfl,
    ),
    "Personal models": (fine_tuning, ditto, apfl, pfedme, per_fedavg, fedper, fedrep, fedbn, lg_fedavg, fedbabu),
    "Models of different widths": (heterofl, fedrolex, fjord, federated_dropout),
    "Models of different architectures": (fed_et, comet),
    "Several models": (ifca, feddrift, feddrift_eager),
    "Fairness and incentives": (maxfl, q_ffl, agnostic_fl, term),
    "Robustness and privacy": (median, trimmed_mean, krum, multi_krum, norm_clipping, fltrust, dp_fedavg),
}
ALGORITHMS = {entry.name: entry for group in GROUPS.values() for entry in map(Algorithm, group)}

__all__ = [
    "ALGORITHMS",
    "GROUPS",
    "Sections",
    "adacomm",
    "afl",
    "agnostic_fl",
    "apfl",
    "cluster_fedvarp",
    "comet",
    "cpow_d",
    "ditto",
    "divfl",
    "dp_fedavg",
    "fed_et",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedbabu",
    "fedbn",
    "fedbuff",
    "feddrift",
    "feddrift_eager",
    "federated_dropout",
    "fedexp",
    "fednova",
    "fednova_hybrid",
    "fednova_momentum",
    "fednova_prox",
    "fednova_vr",
    "fedper",
    "fedprox",
    "fedrep",
    "fedrolex",
    "fedvarp",
    "fedyogi",
    "filfl",
    "fine_tuning",
    "fjord",
    "fltrust",
    "heterofl",
    "ifca",
    "krum",
    "lg_fedavg",
    "local_adagrad",
    "local_adam",
    "local_yogi",
    "low_loss",
    "maxfl",
    "median",
    "mifa",
    "multi_krum",
    "norm_clipping",
    "oort",
    "optimal_client_sampling",
    "per_fedavg",
    "pfedme",
    "power_of_choice",
    "q_ffl",
    "rpow_d",
    "safari",
    "scaffold",
    "scaffold_exp",
    "scheme_a",
    "scheme_b",
    "scheme_c",
    "slowmo",
    "term",
    "trimmed_mean",
]
