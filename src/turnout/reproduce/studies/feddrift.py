"""FedDrift: a new model for every change of labels, against one model for all and an oracle that knows the changes."""

from collections.abc import Mapping

import numpy as np

from turnout.array_types import Floats
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim, Statement, above, exactly, number
from turnout.reproduce.reading import POINTS, curve, loss_gap
from turnout.reproduce.shipped import About

ONE, NEVER, DRIFT, EAGER = "one model", "never a drift", "FedDrift", "FedDrift-Eager"
IFCA, ORACLE = "IFCA", "oracle"
CELLS = ("sine", "circle", "mnist")
MARGIN = 2.0  # points that FedDrift may be below the oracle
ROUNDING = 1e-3  # of a loss: sums are taken in another order, which grows over the rounds

ABOUT = About(
    paper="Jothimurugesan et al. 2023, FedDrift (SINE, CIRCLE and MNIST with swapped labels)",
    what="FedDrift is more accurate than one model for all, and about as accurate as an oracle.",
    primary=(tuple(f"better {cell}" for cell in CELLS), tuple(f"oracle {cell}" for cell in CELLS)),
    most=10,
    first_seed=300,
    found="FedDrift is 21 points better than one model on SINE, 6 on CIRCLE and 4 on MNIST, and within 2 of the oracle "
    "on the last two; IFCA, which is told the number of concepts, is 3 worse on MNIST.",
    small="8 min",
    needs=("mnist",),
    scales={
        "smoke": ("rounds=20", "seeds=2"),
        "small": (),
        "paper": ("rounds=2000", "data.rounds_per_step=200", "evaluate.clients_every=200"),
    },
    cells={
        "sine": (),
        "circle": ('data.task="circle"', "model.hidden=[8]", "local.steps=50"),
        "mnist": (
            'data={use="mnist-drift", pattern="A", rounds_per_step=10, samples=100}',
            "model.hidden=[100]",
            "local.lr=0.1",
        ),
    },
    notes=(
        "Ten clients and ten time steps, with the authors' change points of pattern A: two concepts. A time step is 10 "
        "rounds in place of 200, with a larger learning rate. Accuracy is that of each client's model on the samples "
        "of the next time step, at the end of each time step, and the mean over the time steps: also the oracle has "
        "not seen a change that comes next.",
        "All data sets have the threshold 0.1, the authors' choice for CIRCLE and MNIST. A client trains only the "
        "model that it uses now; in the authors' code it goes on training those that it used before.",
        "IFCA has two models, the true number of concepts, and compares and trains them on the samples of the newest "
        "time step. The oracle's and IFCA's models start from weights of their own; FedDrift's new ones as copies.",
        "The setting of CIRCLE was changed after a first run on other seeds. With 4 hidden units and 20 steps, "
        "most runs, also of the oracle, were about as accurate as the more frequent class alone, 93 % of one concept's "
        "samples and 81 % of the other's, so that there was little to tell apart. With 8 units and 50 steps, "
        "which it has now, an oracle ended at 98 % and one model at 88 %, on four other seeds.",
        "On SINE, FedDrift is 11 points or more below the oracle in three of ten seeds, and 11 above it in one. In a "
        "run before, where it was 4 points or more below, four to six models were in use in some time step, and in the "
        "other seeds three at most.",
    ),
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """Compare the accuracy on the next samples, mean over the time steps."""
    found = []
    for cell in CELLS:
        accuracy = {arm: by_step(loaded[cell], arm) for arm in (ONE, DRIFT, EAGER, IFCA, ORACLE)}
        found += [
            above(
                Statement(id=f"better {cell}", text=f"{cell}: FedDrift − one model", paper="better", unit="points"),
                accuracy[DRIFT] - accuracy[ONE],
            ),
            above(
                Statement(
                    id=f"oracle {cell}",
                    text=f"{cell}: FedDrift − oracle, not below −{MARGIN:g}",
                    paper="comparable",
                    unit="points",
                ),
                accuracy[DRIFT] - accuracy[ORACLE],
                than=-MARGIN,
            ),
            above(
                Statement(id=f"clustered {cell}", text=f"{cell}: FedDrift − IFCA", paper="better", unit="points"),
                accuracy[DRIFT] - accuracy[IFCA],
            ),
            number(
                Statement(
                    id=f"eager {cell}", text=f"{cell}: FedDrift-Eager − one model", paper="better", unit="points"
                ),
                accuracy[EAGER] - accuracy[ONE],
            ),
            exactly(
                Statement(id=f"never {cell}", text=f"{cell}: without a drift it is one model", paper="one model"),
                loss_gap(loaded[cell], NEVER, ONE),
                ROUNDING,
            ),
        ]
    return found


def by_step(loaded: Loaded, arm: str) -> Floats:
    """Return each seed's accuracy at the end of the time steps, on the samples of the next one, mean over them."""
    every = int(loaded.study["config"]["data"]["rounds_per_step"])
    rounds, values = curve(loaded, arm)
    ends = (rounds > 0) & (rounds % every == 0)
    mean: Floats = np.asarray(POINTS * values[:, ends].mean(axis=1))
    return mean
