"""What a tracker is, and the numbers it is given: those of the journal, under the journal's names."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from turnout.requests import Record

Place = tuple[str, int]  # arm, seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """The study whose runs are tracked."""

    study: str
    folder: Path  # the one the journal is in
    configs: Mapping[str, Mapping[str, Any]]  # by arm: its settings

    def key(self, place: Place) -> str:
        """Return the same text for the same run of the same folder, whenever it is asked for."""
        text = f"{self.folder.absolute()}\n{self.study}\n{place[0]}\n{place[1]}"
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def file_name(self, place: Place) -> str:
        """Return a run as a path below a folder: the arm, then the seed."""
        arms = list(self.configs)
        names = [re.sub(r"[^\w ,.+-]", "_", arm).strip(" .") or "arm" for arm in arms]
        at = arms.index(place[0])
        alone = names.count(names[at]) == 1
        return f"{names[at] if alone else f'{names[at]} ({at + 1})'}/seed {place[1]}"


class Tracker(Protocol):
    """Takes the rounds of many runs, which may come interleaved."""

    @staticmethod
    def check(folder: Path) -> None:
        """Raise if what it writes to the study's folder, which may be a stranger's, would leave it."""
        ...

    def record(self, place: Place, record: Record) -> None:
        """Take one round; the first of a run may be a later one, where a study goes on."""
        ...

    def close(self) -> None:
        """Let go of every run; those whose last round has not come were stopped."""
        ...


def numbers(record: Record) -> dict[str, float]:
    """Return the numbers of a round, by the names of the columns of `turnout.load(folder).rounds`."""
    counts = {"up": len(record.up), "asked": len(record.asked), "answered": len(record.answered)}
    return {name: float(value) for name, value in {**record.metrics, **counts, **asdict(record.costs)}.items()}


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
