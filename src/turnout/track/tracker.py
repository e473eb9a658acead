"""The protocol of a tracker, and the numbers that it gets: those of the journal, under the journal's names."""

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
        """Return a text that identifies a run of this folder, the same after a restart."""
        text = f"{self.folder.absolute()}\n{self.study}\n{place[0]}\n{place[1]}"
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def file_name(self, place: Place) -> str:
        """Return the path of a run below a tracker's folder: the arm, then the seed."""
        arms = list(self.configs)
        names = [re.sub(r"[^\w ,.+-]", "_", arm).strip(" .") or "arm" for arm in arms]
        at = arms.index(place[0])
        alone = names.count(names[at]) == 1
        return f"{names[at] if alone else f'{names[at]} ({at + 1})'}/seed {place[1]}"


class Tracker(Protocol):
    """Receives the rounds of many runs, which may be interleaved."""

    @staticmethod
    def check(folder: Path) -> None:
        """Raise if a link in the study's folder, which is untrusted, would make the tracker write elsewhere."""
        ...

    def record(self, place: Place, record: Record) -> None:
        """Receive one round; if a study resumes, the first round of a run is a later one."""
        ...

    def close(self) -> None:
        """Close every run; runs whose last round was not recorded were stopped."""
        ...


def numbers(record: Record) -> dict[str, float]:
    """Return the numbers of a round, by the names of the columns of `turnout.load(folder).rounds`."""
    counts = {"up": len(record.up), "asked": len(record.asked), "answered": len(record.answered)}
    return {name: float(value) for name, value in {**record.metrics, **counts, **asdict(record.costs)}.items()}


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names."""
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        flattened |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flattened
