"""Runs on quadratics, audited: the point that the audit predicts, and the point where the run ended."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import turnout as to
from turnout.analysis.audit import Audit, audit
from turnout.array_types import Floats
from turnout.engine import Vectorised
from turnout.losses import quadratic

PROBLEM = to.data.Quadratics(
    curvatures=(1.0, 1.6, 0.7, 1.2, 0.9, 1.4),
    targets=((3.0, 0.0), (0.0, 4.0), (-2.0, 1.0), (1.0, -3.0), (-1.0, -2.0), (2.0, 2.0)),
    num_examples=(1, 2, 3, 1, 2, 3),
)


class Ended(NamedTuple):
    """A run that ended: its journal, its audit, and its last model."""

    loaded: Any
    found: Audit
    model: Floats

    @property
    def predicted(self) -> Floats:
        """The minimiser of Σ p̃_i F_i."""
        return PROBLEM.optimum(self.found.weights.effective)

    @property
    def error(self) -> float:
        """Distance of the last model from the predicted point."""
        return float(np.linalg.norm(self.model - self.predicted))

    @property
    def bias(self) -> float:
        """Distance of the predicted point from the optimum that was asked for."""
        return float(np.linalg.norm(self.predicted - PROBLEM.optimum()))


def run_arms(arms: Mapping[str, Mapping[str, Any]], *, rounds: int, since: int = 1, seed: int = 0) -> dict[str, Ended]:
    """Run the problem once per arm, all together, and audit the rounds from `since` on."""
    study = to.Study(
        data=PROBLEM,
        model=to.models.Point(dim=2, dtype="float64"),
        local=to.local.SGD(lr=1.0, steps=1, batches="full"),
        loss=quadratic,
        rounds=rounds,
        seeds=(seed,),
        evaluate=to.Cadence(every=rounds),
        arms=tuple(to.arm(name, **sections) for name, sections in arms.items()),
    )
    result = study.run(engine=Vectorised(deterministic=True), deterministic=True, progress=False)
    found = {}
    for name in arms:
        (model,) = result.state_dict(name, seed).values()
        audited = audit(result.loaded, name, seed, since=since)
        found[name] = Ended(result.loaded, audited, model.numpy().astype(float))
    return found


def run_quadratics(*, rounds: int, since: int = 1, seed: int = 0, lr: float = 0.02, **sections: Any) -> Ended:
    """Run the problem and audit the rounds from `since` on; clients take 4 full-gradient steps unless told."""
    local = {"local": to.local.SGD(lr=lr, steps=4, batches="full")}
    return run_arms({"study": local | sections}, rounds=rounds, since=since, seed=seed)["study"]
