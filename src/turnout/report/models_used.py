"""Which of several models each client trained: a map of clients and rounds, coloured by model."""

import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.report import svg
from turnout.report.load_studies import Arm

NOT_ASKED = "#eceef1"
MOST_ROWS, MOST_COLUMNS = 300, 500  # of a map; of more clients or rounds, every n-th is shown


class Used(NamedTuple):
    """The models that the clients of a run trained."""

    arm: str
    seed: int
    rounds: Ids
    models: Ids  # clients by rounds; −1 if not asked


def models_used(arms: Sequence[Arm]) -> tuple[Used, ...]:
    """Return the models of the first seed of each arm with several."""
    found = [Used(arm.name, arm.seeds[0], *models_by_client(arm, arm.seeds[0])) for arm in arms if arm.seeds]
    return tuple(each for each in found if each.models.size)


def models_by_client(arm: Arm, seed: int) -> tuple[Ids, Ids]:
    """Return the rounds of a run, and the model of each client (rows) in each round (columns), −1 if not asked."""
    read = list(arm.study.round_by_client("assignment", arm.own_name, seed))
    rounds = np.array([round for round, _ in read], dtype=np.int64)
    columns = [values.astype(np.int64) for _, values in read]
    return rounds, np.stack(columns, axis=1) if columns else np.zeros((0, 0), dtype=np.int64)


def models_map(rounds: Ids, models: Ids) -> str:
    """Return the map as a figure; models beyond the number of colours share them."""
    shown = models[:: -(-models.shape[0] // MOST_ROWS), :: -(-models.shape[1] // MOST_COLUMNS)]
    colours = [NOT_ASKED, *(svg.COLOURS[model % len(svg.COLOURS)] for model in range(int(models.max(initial=0)) + 1))]
    pixels: NDArray[np.uint8] = np.array([_rgb(colour) for colour in colours], dtype=np.uint8)[shown + 1]
    names = {model: "not asked" if model < 0 else f"model {model}" for model in np.unique(shown).tolist()}
    legend = [(name, colours[model + 1]) for model, name in names.items()]
    return svg.cell_figure(pixels, legend, ("rounds", "clients, in order of id", int(rounds[-1])))


def models_markup(used: Sequence[Used]) -> str:
    """Return a map for each of these runs."""
    parts = []
    for arm, seed, rounds, models in used:
        counts = [len(np.unique(column[column >= 0])) for column in models.T]
        heading = f"<h3>{html.escape(arm)}</h3>"
        words = f"Seed {seed}: {counts[-1]} models in use in the last round, at most {max(counts)} in any."
        parts.append(f"{heading}<figure>{models_map(rounds, models)}</figure><p class=note>{words}</p>")
    return "".join(parts)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
