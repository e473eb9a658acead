"""Small studies that together use every rule on every axis: what `benchmarks.digests` runs and compares.

Each case is a set of sections laid over BASE, as a study file would write them. Keys are sections; a section replaces
the base's section of that name. A case with `local = SGD | {...}` changes single settings.
"""

from typing import Any

from torch import nn

Sections = dict[str, Any]


class Normalised(nn.Sequential):
    """A network with running statistics."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 10))


class Dropping(nn.Sequential):
    """A network with dropout."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Dropout(0.3), nn.Linear(20, 10))


SGD: Sections = {"use": "sgd", "lr": 0.1, "batch_size": 8, "epochs": 1}
DIGITS: Sections = {
    "use": "digits",
    "clients": 12,
    "partition": {"use": "dirichlet", "concentration": 0.3, "min_size": 2, "top_up": True},
    "holdout": 0.2,
    "server_samples": 60,
}
DRIFTING: Sections = {"use": "concept-drift", "task": "sine", "rounds_per_step": 1, "samples": 20}
FAMILY: Sections = {
    "use": "family",
    "server": {"use": "mlp", "hidden": [30, 12]},
    "clients": [{"use": "mlp", "hidden": [12]}, {"use": "mlp", "hidden": [16, 12]}],
}
CLOCK: Sections = {"use": "deadline", "seconds_per_step": {"median": 0.5, "sigma": 0.8}}
BASE: Sections = {
    "name": "digest",
    "rounds": 5,
    "seeds": [3],
    "data": DIGITS,
    "model": {"use": "mlp", "hidden": [20]},
    "local": SGD,
    "selection": {"use": "uniform", "cohort_size": 6},
    "evaluate": {"every": 1, "clients_every": 2},
}


def _fleet(**parts: Any) -> Sections:
    return {"fleet": parts}


def _scaffold(**settings: Any) -> Sections:
    weighting = {"use": "fedavg", "weighting": "mean"}
    return {"local": SGD | {"control": "average"} | settings, "aggregation": weighting}


def _adaptive(use: str, **settings: Any) -> Sections:
    return {"use": use, "lr": 0.05, "batch_size": 8, "steps": 4} | settings


EVERYONE = {"use": "uniform", "cohort_size": "none"}
UNEQUAL = SGD | {"epochs": [1, 4]}
STRAGGLERS = _fleet(work={"use": "stragglers", "prob": 0.5})
RARELY = {"use": "bernoulli", "prob": 0.5}
POOL = {"cohort_size": 3, "pool_size": 6}
MOVES = {"arrivals": [{"client": 10, "round": 2}], "departures": [{"client": 1, "round": 4}]}


def _moves(**turnover: Any) -> Sections:
    return _fleet(membership={"use": "scheduled"} | MOVES) | {"turnover": turnover}


FEDBUFF = {"use": "fedbuff", "buffer_size": 3, "concurrency": 5}

CASES: dict[str, Sections] = {
    # local solvers, schedules and efforts
    "plain": {},
    "momentum": {"local": SGD | {"momentum": 0.9}},
    "everything-local": {
        "local": SGD
        | {"momentum": 0.5, "weight_decay": 0.01, "prox_strength": 0.1, "lr_decay": 0.95, "clip_norm": 1.0},
    },
    "prox": {"local": SGD | {"prox_strength": 0.5}},
    "replaced-batches": {"local": SGD | {"batches": "replaced"}},
    "full-batch": {"local": {"use": "sgd", "lr": 0.3, "steps": [2, 5], "batches": "full"}},
    "adagrad": {"local": _adaptive("adagrad")},
    "adam": {"local": _adaptive("adam", lr=0.01, bias_correction=True)},
    "yogi-local-correction": {"local": _adaptive("yogi", lr=0.01, correction="local")},
    "adagrad-joint": {"local": _adaptive("adagrad", correction="joint"), "aggregation": "joint"},
    "adam-joint": {"local": _adaptive("adam", lr=0.01, correction="joint"), "aggregation": "joint"},
    "meta": {"local": {"use": "meta", "lr": 0.05, "batch_size": 8, "epochs": 1, "inner_lr": 0.05}},
    "ditto": {"personal": {"use": "ditto", "strength": 0.5}},
    "apfl": {"personal": {"use": "apfl", "mixing": 0.3, "mixing_lr": 0.05}},
    "fedrep": {"personal": {"use": "layers", "keep": ["3"], "order": "kept-first", "kept_steps": 3}},
    "fine-tuning": {"personal": {"use": "fine-tune", "steps": 2}},
    "pfedme": {
        "local": {"use": "moreau", "lr": 0.05, "batch_size": 8, "epochs": 1, "strength": 2.0, "inner_steps": 2},
        "personal": "moreau",
    },
    "fed-et": {
        "data": DIGITS | {"public_samples": 40},
        "model": FAMILY,
        "width": {"use": "architectures"},
        "aggregation": {"use": "ensemble-transfer", "steps": 4, "batch_size": 16},
    },
    "comet": {"data": DIGITS | {"public_samples": 40}, "personal": {"use": "codistil", "distil_steps": 2}},
    "heterofl": {"width": {"use": "nested", "rates": [1.0, 0.5, 0.25], "assign": "by-speed"}} | _fleet(clock=CLOCK),
    "fedrolex": {"width": {"use": "rolling", "rates": [0.5, 0.25], "assign": "drawn"}},
    "federated-dropout": {"width": {"use": "random", "rates": [0.5]}, "local": SGD | {"momentum": 0.5}},
    "fjord": {"width": {"use": "ordered", "rates": [1.0, 0.5]}, "local": SGD | {"prox_strength": 0.1}},
    "maxfl": {"aggregation": {"use": "appeal", "epochs": 2}},
    "appealed": _fleet(availability={"use": "appealed", "epochs": 1, "warmup_rounds": 1, "patience": 1}),
    "q-ffl": {"aggregation": {"use": "q-ffl", "power": 1.0}},
    "term": {"aggregation": {"use": "tilted", "tilt": 1.0}},
    "agnostic-fl": {"aggregation": {"use": "agnostic", "rate": 0.1}},
    "ifca": {"assignment": {"use": "lowest-loss", "num_models": 3}},
    "given-models": {"assignment": {"use": "given", "models": [0, 1] * 6}},
    "feddrift": {"data": DRIFTING, "assignment": {"use": "drift", "threshold": 0.05}},
    "drift-oracle": {"data": DRIFTING, "assignment": {"use": "concept", "num_models": 2}},
    "constant-schedule": {"local": SGD | {"schedule": "constant"}},
    "exponential-schedule": {"local": SGD | {"schedule": {"use": "exponential", "decay": 0.9}}},
    "inverse-schedule": {"local": SGD | {"schedule": "inverse"}},
    "step-schedule": {"local": SGD | {"schedule": {"use": "step", "milestones": [2, 4]}}},
    "adacomm": {
        "local": {"use": "sgd", "lr": 0.1, "batch_size": 8, "effort": {"use": "adacomm", "start": 8, "every": 2}},
    },
    "by-trace": {
        "local": {
            "use": "sgd",
            "lr": 0.1,
            "batch_size": 8,
            "effort": {"use": "by-trace", "traces": [[1, 4, 2], [3, 6]]},
        },
    },
    "lognormal": {"local": {"use": "sgd", "lr": 0.1, "batch_size": 8, "effort": {"use": "lognormal", "mean": 4.0}}},
    # aggregation
    "fedavg-mean": {"local": UNEQUAL, "aggregation": {"use": "fedavg", "weighting": "mean"}},
    "fedavg-ht": {"local": UNEQUAL, "aggregation": {"use": "fedavg", "weighting": "ht"}},
    "fednova": {"local": UNEQUAL, "aggregation": "fednova"},
    "fednova-momentum": {"local": UNEQUAL | {"momentum": 0.9, "prox_strength": 0.1}, "aggregation": "fednova"},
    "scheme-a": {"aggregation": "scheme-a", "selection": EVERYONE} | STRAGGLERS,
    "scheme-b": {"aggregation": "scheme-b", "selection": EVERYONE} | STRAGGLERS,
    "scheme-c": {"aggregation": "scheme-c", "selection": EVERYONE} | STRAGGLERS,
    "fedvarp": {"aggregation": "fedvarp"} | _fleet(availability=RARELY),
    "cluster-fedvarp": {"aggregation": {"use": "cluster-fedvarp", "num_clusters": 3}} | _fleet(availability=RARELY),
    "mifa": {"aggregation": "mifa"} | _fleet(availability=RARELY),
    "mifa-wait": {"aggregation": {"use": "mifa", "wait": True}, "server": "fedavgm"} | _fleet(availability=RARELY),
    "median": {"aggregation": "median"},
    "trimmed-mean": {"aggregation": {"use": "trimmed-mean", "fraction": 0.2}},
    "krum": {"aggregation": "krum"},
    "multi-krum": {"aggregation": "multi-krum"},
    "norm-clipping": {"aggregation": "norm-clipping"},
    "fltrust": {"aggregation": "fltrust"},
    "private": {
        "selection": {"use": "poisson", "prob": 0.5},
        "aggregation": {
            "use": "private",
            "clip_norm": 0.5,
            "noise_multiplier": 0.8,
            "cohort_size": 6,
            "sampling": "poisson",
        },
    },
    # control variates
    "scaffold": _scaffold(),
    "scaffold-gradient": _scaffold(control="gradient"),
    "scaffold-momentum-unequal": _scaffold(momentum=0.5, epochs=[1, 3]) | _fleet(availability=RARELY),
    "scaffold-greedy": _scaffold() | {"filtering": {"use": "greedy", "every": 2}},
    "scaffold-deadline": _scaffold() | _fleet(clock=CLOCK | {"deadline_seconds": 4.0}),
    # servers
    "fedavgm": {"server": "fedavgm"},
    "fedadagrad": {"server": "fedadagrad"},
    "fedadam": {"server": "fedadam"},
    "fedyogi": {"server": "fedyogi"},
    "fedexp": {"server": "fedexp"},
    "slow-momentum": {"server": "slow-momentum"},
    # selection
    "weighted": {"selection": {"use": "weighted", "cohort_size": 5}},
    "with-replacement": {"selection": {"use": "uniform", "cohort_size": 5, "replacement": True}},
    "poisson": {"selection": {"use": "poisson", "prob": 0.4}},
    "power-of-choice": {"selection": {"use": "power-of-choice"} | POOL},
    "power-of-choice-batch": {"selection": {"use": "power-of-choice", "estimate": "batch", "batch_size": 6} | POOL},
    "power-of-choice-last": {"selection": {"use": "power-of-choice", "estimate": "last"} | POOL},
    "low-loss": {"selection": {"use": "low-loss"} | POOL},
    "afl": {"selection": {"use": "afl", "cohort_size": 4}},
    "divfl": {"selection": {"use": "divfl", "cohort_size": 4}},
    "divfl-full": {"selection": {"use": "divfl", "cohort_size": 4, "refresh": "full"}},
    "optimal": {"selection": {"use": "optimal"} | POOL, "aggregation": {"use": "fedavg", "weighting": "ht"}},
    "oort": {"selection": {"use": "oort", "cohort_size": 4}} | _fleet(clock=CLOCK),
    # filtering
    "everyone": {"filtering": "everyone"},
    "greedy": {"filtering": {"use": "greedy", "every": 2}},
    "greedy-randomised": {"filtering": {"use": "greedy", "every": 1, "mode": "randomised"}},
    "greedy-power-of-choice": {
        "filtering": {"use": "greedy", "every": 2},
        "selection": {"use": "power-of-choice"} | POOL,
    },
    "data-size": {"filtering": {"use": "data-size", "least": 60}},
    "minimum-steps": {"filtering": {"use": "minimum-steps", "least": 4}} | STRAGGLERS,
    "update-norm": {"filtering": {"use": "update-norm", "factor": 1.2}},
    # fleets
    "always": _fleet(availability="always"),
    "bernoulli": _fleet(availability=RARELY),
    "bernoulli-nobody": _fleet(availability={"use": "bernoulli", "prob": 0.05}),
    "cyclic": _fleet(availability={"use": "cyclic", "groups": 3}),
    "diurnal": _fleet(availability={"use": "diurnal", "period_rounds": 4.0, "zones": 2}),
    "half-and-half": _fleet(availability="half-and-half"),
    "markov": _fleet(availability="markov"),
    "never": _fleet(availability={"use": "never", "count": 4, "others": RARELY}),
    "resampled": _fleet(availability={"use": "resampled", "size": 5, "every": 2}),
    "journal": _fleet(use="journal", run="JOURNAL", over_selection=1.3) | {"selection": EVERYONE},
    "recorded": _fleet(availability={"use": "recorded", "trace": "TRACE", "round_seconds": 600.0}),
    "complete": _fleet(work="complete"),
    "fraction": {"local": UNEQUAL} | _fleet(work={"use": "fraction", "fraction": 0.6, "spread": 0.2}),
    "ruan-traces": {"aggregation": "scheme-c", "selection": EVERYONE} | _fleet(work="ruan-traces"),
    "deadline": {"local": UNEQUAL} | _fleet(clock=CLOCK | {"deadline_seconds": 3.0}),
    "deadline-dropped": {"local": UNEQUAL} | _fleet(clock=CLOCK | {"deadline_seconds": 3.0, "incomplete": "drop"}),
    "over-selection": {"local": UNEQUAL} | _fleet(clock=CLOCK | {"over_selection": 1.5}),
    "scheduled-fast": _fleet(membership={"use": "scheduled"} | MOVES),
    "scheduled-exclude": {"local": SGD | {"schedule": "inverse"}} | _moves(on_departure="exclude", reboot="vanilla"),
    "scheduled-auto": _moves(on_departure="auto"),
    "random-members": _fleet(
        membership={"use": "random", "present": 0.5, "arrival_prob": 0.3, "departure_prob": 0.2},
    ),
    "members-fedvarp": {"aggregation": "fedvarp"} | _moves(reboot="vanilla"),
    "members-scaffold": _scaffold() | _moves(reboot="vanilla"),
    # the server's own rounds, and servers that do not wait
    "safari": {"assist": {"use": "safari", "lr": 0.1, "steps": 3, "batch_size": 8}},
    "fedbuff": {"asynchrony": FEDBUFF} | _fleet(clock=CLOCK),
    "fedbuff-adam": {"asynchrony": FEDBUFF, "server": "fedadam", "local": UNEQUAL} | _fleet(clock=CLOCK),
    "fedbuff-median": {"asynchrony": FEDBUFF, "aggregation": "median"} | _fleet(clock=CLOCK, availability=RARELY),
    "fedbuff-stragglers": {"asynchrony": FEDBUFF, "aggregation": "fednova"}
    | _fleet(clock=CLOCK, work={"use": "stragglers", "prob": 0.5}),
    # attacks, and what is believed
    "free-rider": {"attack": {"use": "free-rider", "fraction": 0.3, "noise": 0.01}},
    "gaussian": {"attack": {"use": "gaussian", "fraction": 0.2, "std": 0.1}, "aggregation": "median"},
    "inner-product": {"attack": {"use": "inner-product", "fraction": 0.2}},
    "label-flip": {"attack": {"use": "label-flip", "fraction": 0.3}},
    "little-is-enough": {"attack": {"use": "little-is-enough", "fraction": 0.3}},
    "model-replacement": {
        "attack": {"use": "model-replacement", "fraction": 0.2},
        "trust": {"policy": "clip", "max_norm": 1.0},
    },
    "nan": {"attack": {"use": "nan", "fraction": 0.3}},
    "nan-scaffold": _scaffold() | {"attack": {"use": "nan", "fraction": 0.3}},
    "nan-fedbuff": {"asynchrony": FEDBUFF, "attack": {"use": "nan", "fraction": 0.3}} | _fleet(clock=CLOCK),
    "scaled-update": {
        "attack": {"use": "scaled-update", "fraction": 0.2},
        "trust": {"policy": "reject", "max_norm": 2.0},
    },
    "sign-flip": {"attack": {"use": "sign-flip", "fraction": 0.2}, "aggregation": {"use": "trimmed-mean"}},
    # data, partitions and models
    "shards": {"data": DIGITS | {"partition": {"use": "shards", "per_client": 2}}},
    "iid-softmax": {"data": DIGITS | {"partition": "iid"}, "model": "softmax"},
    "dirichlet-client": {"data": DIGITS | {"partition": {"use": "dirichlet-client", "concentration": 0.5}}},
    "k-labels": {"data": DIGITS | {"partition": {"use": "k-labels", "labels_per_client": 3}}},
    "one-label": {"data": DIGITS | {"partition": "one-label"}},
    "pareto": {"data": DIGITS | {"partition": "pareto"}},
    "quadratics": {
        "data": {"use": "quadratics", "clients": 8},
        "model": {"use": "point", "dim": 2},
        "loss": "quadratic",
        "evaluate": {"every": 1},
    },
    "linear-regression": {
        "data": {"use": "linear-regression", "clients": 8, "dim": 40},
        "model": "softmax",
        "local": SGD | {"lr": 0.001},
        "evaluate": {"every": 1},
    },
    "batch-norm": {
        "model": {"use": "benchmarks.digest_cases:Normalised"},
        "local": SGD | {"batches": "replaced"},
    },
    "dropout": {"model": {"use": "benchmarks.digest_cases:Dropping"}},
    "synthetic": {"data": {"use": "synthetic", "clients": 10}, "model": "softmax", "evaluate": {"every": 1}},
    "synthetic-iid": {"data": {"use": "synthetic-iid", "clients": 10}, "model": "softmax", "evaluate": {"every": 1}},
    "synthetic-on-demand": {
        "data": {"use": "synthetic-on-demand", "clients": 50},
        "model": "softmax",
        "evaluate": {"every": 1},
    },
}
CASES |= {
    "everything-at-once": _scaffold(momentum=0.5, epochs=[1, 3])
    | {
        "filtering": {"use": "greedy", "every": 2},
        "selection": {"use": "power-of-choice"} | POOL,
        "server": "fedadam",
        "assist": {"use": "safari", "lr": 0.1, "client_prob": 0.7, "batch_size": 8},
        "attack": {"use": "sign-flip", "fraction": 0.1},
        "trust": {"policy": "clip", "max_norm": 3.0},
    }
    | _fleet(
        availability={"use": "bernoulli", "prob": 0.8},
        clock=CLOCK | {"deadline_seconds": 6.0},
        membership={"use": "scheduled"} | MOVES,
    )
    | {"turnover": {"reboot": "vanilla"}},
}
SHORT: Sections = {
    "rounds": 2,
    "selection": {"use": "uniform", "cohort_size": 3},
    "local": {"use": "sgd", "lr": 0.05, "batch_size": 4, "steps": 2},
    "evaluate": {"every": 2},
}
NEEDS_DATA: dict[str, Sections] = {  # skipped where the data sets are not at hand
    "mnist-cnn": SHORT | {"data": {"use": "mnist", "clients": 100}, "model": "cnn"},
    "fashion-mnist": SHORT | {"data": {"use": "fashion-mnist", "clients": 100}, "model": "softmax"},
    "writers-dropout": SHORT | {"data": {"use": "mnist-writers", "clients": 20}, "model": "emnist-cnn"},
    "hapt": SHORT | {"data": {"use": "hapt", "holdout": 0.2}, "model": {"use": "mlp", "hidden": [30]}},
    "shakespeare": SHORT | {"data": {"use": "shakespeare", "clients": 5, "stride": 40}, "model": "char-lstm"},
    "cifar10-lenet5": SHORT | {"data": {"use": "cifar10", "clients": 50}, "model": "lenet5"},
    "cifar10-fedexp-cnn": SHORT | {"data": {"use": "cifar10", "clients": 50}, "model": "fedexp-cnn"},
}
TRACE_ROWS = [
    (client, 600 * step, 600 * (step + 1)) for client in range(12) for step in range(9) if (client + step) % 3
]
