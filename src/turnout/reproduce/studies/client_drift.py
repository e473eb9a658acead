"""Where the average of clients that drift apart ends: between x* and the average of their own minima."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnout.array_types import Floats
from turnout.data.quadratics import Quadratics
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, exactly
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import About
from turnout.reproduce.tasks import RandomQuadratics
from turnout.streams import Streams

STEPS = {"1 step": 1, "5 steps": 5, "20 steps": 20, "200 steps": 200}
ROUNDING = 1e-9

ABOUT = About(
    paper="Joshi, slides on heterogeneity: client drift",
    what="With one local step FedAvg finds x*; with many it finds the average of the clients' own minima.",
    primary=(("grows-5", "grows-20", "grows-200"),),
    most=40,
    found="With one local step FedAvg ends at x*; with more it ends at its closed-form point, and its excess loss "
    "grows from 0.0001 with 5 steps to 0.01 with 200.",
    small="20 s",
    scales={"smoke": ("seeds=2",), "small": (), "paper": ()},
    cells={
        "unequal curvatures": (),
        "equal curvatures": ("data.curvature=[1.0, 1.0]",),
    },
    notes=(
        "The slide is a picture without numbers. Here it is ten parabolas in three dimensions, drawn anew for every "
        "seed, with full gradients and everyone present; where each run ends is compared with the closed form.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold the ends of the runs against the closed forms."""
    unequal, equal = loaded["unequal curvatures"], loaded["equal curvatures"]
    excess = {arm: final(unequal, arm, "loss") - lowest(unequal) for arm in STEPS}
    return [
        exactly(Statement(id="one-step", text="τ = 1 ends at x*", paper="x*"), excess["1 step"], ROUNDING),
        *(
            exactly(
                Statement(id=f"closed-form-{steps}", text=f"τ = {steps} ends at its closed-form point", paper="x_∞(τ)"),
                final(unequal, arm, "loss") - fixed_points(unequal, steps),
                ROUNDING,
            )
            for arm, steps in STEPS.items()
            if steps > 1
        ),
        *(
            above(
                Statement(id=f"grows-{more}", text=f"F − F* is larger with τ = {more} than with {less}", paper="grows"),
                excess[_named(more)] - excess[_named(less)],
            )
            for less, more in ((1, 5), (5, 20), (20, 200))
        ),
        exactly(
            Statement(id="equal", text="equal curvatures: every τ ends at x*", paper="no drift"),
            np.max([np.abs(final(equal, arm, "loss") - lowest(equal)) for arm in STEPS], axis=0),
            ROUNDING,
        ),
    ]


def _named(steps: int) -> str:
    return next(arm for arm, each in STEPS.items() if each == steps)


def problems(loaded: Loaded) -> list[Quadratics]:
    """Return the parabolas of each seed, seeds ascending."""
    given: dict[str, Any] = {key: value for key, value in loaded.study["config"]["data"].items() if key != "use"}
    for key in ("curvature", "target"):
        given[key] = tuple(given[key])
    return [RandomQuadratics(**given).quadratics(Streams(seed)) for seed in sorted(set(loaded.runs["seed"]))]


def objective_at(loaded: Loaded, point: Any) -> Floats:
    """Return F at a point of each seed's problem."""
    return np.array([_objective(problem, np.asarray(point(problem))) for problem in problems(loaded)])


def _objective(problem: Quadratics, x: Floats) -> float:
    curvatures, targets = np.array(problem.curvatures), np.array(problem.targets)
    losses = 0.5 * curvatures * (x @ x) - targets @ x
    return float(problem.weights @ losses)


def lowest(loaded: Loaded) -> Floats:
    """Return F* of each seed's problem."""
    return objective_at(loaded, lambda problem: problem.optimum())


def fixed_points(loaded: Loaded, steps: int) -> Floats:
    """Return F where FedAvg with so many steps stops moving, for each seed."""
    rate = loaded.study["config"]["local"]["lr"]
    return objective_at(loaded, lambda problem: problem.fedavg_fixed_point(None, rate, steps))
