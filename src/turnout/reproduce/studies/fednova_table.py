"""Normalised averaging against plain averaging, with four local solvers and two ways to be unequal."""

from collections.abc import Mapping

import numpy as np

from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, below, number
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import About
from turnout.reproduce.studies.client_drift import lowest
from turnout.streams import Floats

POINTS = 100.0
SOLVERS = ("vanilla", "momentum", "proximal")
PAPER = {  # FedAvg, FedNova: accuracy on CIFAR-10 with VGG-11, in per cent
    "epochs 2": {"vanilla": (60.68, 66.31), "momentum": (65.26, 73.32), "proximal": (60.44, 69.92)},
    "epochs 2-5": {
        "vanilla": (64.22, 73.22),
        "momentum": (70.44, 77.07),
        "proximal": (63.74, 73.41),
        "VR": (74.72, 74.72),
    },
}
BOTH, PAPER_BOTH = "FedNova, momentum + VR", 79.19
LARGE, SMALL = "quadratic 0.02", "quadratic 0.002"
QUADRATIC = (
    'data={ use = "turnout.reproduce.tasks:RandomQuadratics", clients = 10, dim = 3 }',
    'model={ use = "point", dim = 3, dtype = "float64" }',
    'loss="quadratic"',
    'local={ batch_size = "none", epochs = "none", weight_decay = 0.0, schedule = "constant" }',
    'local.effort={ use = "by-trace", traces = [[1], [3], [7], [15]] }',
    "evaluate.every=100",
)

ABOUT = About(
    paper="Wang et al. 2020, FedNova's table",
    what="With unequal local work, averaging progress per unit of work beats averaging progress.",
    small="10 min",
    needs=("fashion-mnist",),
    scales={
        "smoke": ("rounds=3", "seeds=2"),
        "small": (),
        "paper": (),
    },
    cells={
        "epochs 2": ("local.epochs=2",),
        "epochs 2-5": ("local.epochs=[2, 5]",),
        LARGE: (*QUADRATIC, "local.lr=0.02", "rounds=300"),
        SMALL: (*QUADRATIC, "local.lr=0.002", "rounds=2000"),
    },
    notes=(),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Hold FedNova against FedAvg, solver by solver."""
    found, numbers = [], []
    for cell, rows in PAPER.items():
        study = loaded[cell]
        for solver, paper in rows.items():
            gain = POINTS * (final(study, f"FedNova, {solver}") - final(study, f"FedAvg, {solver}"))
            text = f"{cell}, {solver}: FedNova − FedAvg"
            said = Statement(id=f"{cell} {solver}", text=text, paper=f"{paper[1] - paper[0]:.2f}", unit="points")
            if solver in SOLVERS:
                found.append(above(said, gain))
            else:
                numbers.append(number(said, gain))
            for place, rule in enumerate(("FedAvg", "FedNova")):
                said = Statement(
                    id=f"{cell} {solver} {rule}",
                    text=f"{cell}, {solver}: {rule}",
                    paper=f"{paper[place]:.2f}",
                    unit="%",
                )
                numbers.append(number(said, POINTS * final(study, f"{rule}, {solver}")))
    said = Statement(id="both", text=f"epochs 2-5: {BOTH}", paper=f"{PAPER_BOTH:.2f}", unit="%")
    numbers.append(number(said, POINTS * final(loaded["epochs 2-5"], BOTH)))
    return [*found, _spread(loaded), *_on_quadratics(loaded), *numbers]


def _spread(loaded: Mapping[str, Loaded]) -> Claim:
    """Compare the spread over seeds: one number for each of the six rows, so the rows are what is tested over."""
    spreads = [
        [POINTS * np.std(final(loaded[cell], f"{rule}, {solver}"), ddof=1) for rule in ("FedNova", "FedAvg")]
        for cell in PAPER
        for solver in SOLVERS
    ]
    text = "standard deviation over seeds, FedNova − FedAvg, over the six rows"
    said = Statement(id="steadier", text=text, paper="−1.31", unit="points", note="the spread is over rows, not seeds")
    return below(said, np.array([ours - theirs for ours, theirs in spreads]))


def _on_quadratics(loaded: Mapping[str, Loaded]) -> list[Claim]:
    excess = {cell: {rule: _excess(loaded[cell], rule) for rule in ("FedAvg", "FedNova")} for cell in (LARGE, SMALL)}
    return [
        above(
            Statement(id="bias", text="parabolas, η = 0.002: F − F*, FedAvg − FedNova", paper="FedAvg is biased"),
            excess[SMALL]["FedAvg"] - excess[SMALL]["FedNova"],
        ),
        below(
            Statement(
                id="vanishes", text="parabolas: F − F* of FedNova, η = 0.002 ÷ η = 0.02", paper="→ 0 with η", unit="×"
            ),
            excess[SMALL]["FedNova"] / excess[LARGE]["FedNova"],
            0.1,
        ),
        above(
            Statement(
                id="stays", text="parabolas: F − F* of FedAvg, η = 0.002 ÷ η = 0.02", paper="does not vanish", unit="×"
            ),
            excess[SMALL]["FedAvg"] / excess[LARGE]["FedAvg"],
            0.5,
        ),
    ]


def _excess(study: Loaded, rule: str) -> Floats:
    return np.asarray(final(study, f"{rule}, vanilla", "loss") - lowest(study))
