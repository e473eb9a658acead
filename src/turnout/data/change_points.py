"""Change points: which concept labels the samples of each client in each time step.

A file of change points is plain text: one line for each time step, from the first on, and in it one concept number,
from 0, for each client, separated by spaces or commas. The last line is the time step after the last one of training:
models are measured on it, and not trained. What follows a # is left out, and so are empty lines. With three clients,
of which the second changes after one time step of training and the first after two:

    0 0 0   # time step 0
    0 1 0
    1 1 0   # measured only

The patterns A to D are those of FedDrift, for ten clients and ten time steps. A: two concepts; each client changes at
times of its own. B: four concepts, which appear one after another. C: four concepts, and two of them appear in the same
time step. D: four concepts from the first time step on.

Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799.
"""

import stat
from pathlib import Path
from typing import Protocol

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError, DataError

MOST_CONCEPTS = 1000
MOST_BYTES = 4 << 20  # of a file
LONGEST = 20  # letters of a number
PATTERNS = {  # one word per time step, one digit per client
    "A": "0000000000 0100000000 0100000100 0111010100 0111010110 1011011010 "
    "1001001010 1000101011 1000101001 1000101001 1000101001",
    "B": "0000000000 1110000000 1112220000 2212222100 2221222130 2321233130 "
    "3321133210 3033133213 0033313223 0003311322 0003311322",
    "C": "0000000000 1112220000 1112220030 2211222130 2221232130 2321133130 "
    "3323133210 3033313213 0033313223 0003311322 0003311322",
    "D": "1112220033 1112220033 2211222032 2221232002 2321133002 3323133202 "
    "3033313201 0033313221 0003311321 0003311321 0003311321",
}


def pattern_concepts(pattern: str) -> Ids:
    """Return the concepts of a pattern, one row per client and one column per time step."""
    return np.array([[int(digit) for digit in row] for row in PATTERNS[pattern].split()]).T.copy()


def read_concepts(path: Path) -> Ids:
    """Return the concepts of a file, one row per client and one column per time step."""
    text = _limited_text(path)
    lines = {number: line.split("#")[0].replace(",", " ").split() for number, line in enumerate(text.splitlines(), 1)}
    rows = {number: words for number, words in lines.items() if words}
    first = next(iter(rows.values()), [])
    for number, words in rows.items():
        if len(words) != len(first) or not all(_is_concept(word) for word in words):
            raise DataError(
                f"{path}:{number}: a line needs one concept number, from 0 to {MOST_CONCEPTS - 1}, for each of the "
                f"{len(first)} clients; got {' '.join(words)[:60]!r}. Write {len(first)} whole numbers."
            )
    if len(rows) < 2:
        raise DataError(
            f"{path} needs a line for each time step, and one more for the samples after the last; got {len(rows)}. "
            "Add lines."
        )
    return np.array([[int(word) for word in words] for words in rows.values()]).T.copy()


def _limited_text(path: Path) -> str:
    """Return the text of a file; raise DataError if it is too large, not text or not a regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is no regular file")
        with path.open("rb") as stream:
            text = stream.read(MOST_BYTES + 1).decode()
    except (OSError, ValueError) as error:
        raise DataError(f"The change points in {path} cannot be read: {error}. Change data.change_points.") from None
    if len(text) > MOST_BYTES:
        raise DataError(f"{path} has more than {MOST_BYTES:,} bytes, too many for change points. Name another file.")
    return text


def _is_concept(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < LONGEST and int(word) < MOST_CONCEPTS


class ChangePoints(Protocol):
    """The settings by which data choose their change points."""

    @property
    def pattern(self) -> str:
        """A key of PATTERNS."""
        ...

    @property
    def change_points(self) -> str | Path | None:
        """A file in place of the pattern."""
        ...

    @property
    def time_steps(self) -> int | None:
        """How many time steps are used; None: all."""
        ...


def chosen_concepts(chosen: ChangePoints, name: str, num_concepts: int) -> Ids:
    """Return the concept of each client in each time step of training, and in the one after the last."""
    file, steps = chosen.change_points, chosen.time_steps
    concepts = pattern_concepts(chosen.pattern) if file is None else read_concepts(Path(file))
    most = concepts.shape[1] - 1
    if steps is not None and steps > most:
        raise ConfigError(
            f"{name} needs time_steps <= {most}, which its change points have; got {steps}. Change data.time_steps.",
            setting="data.time_steps",
        )
    if concepts.max() >= num_concepts:
        raise DataError(
            f"{name} has {num_concepts} concepts, from 0 to {num_concepts - 1}; the change points name concept "
            f'{concepts.max()}. Set data.pattern to "A", or change the file.'
        )
    return concepts[:, : (steps or most) + 1]
