"""The shipped studies: each is one study file and one module of claims beside it, found by their names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module, resources
from pathlib import Path
from typing import Literal, get_args

from turnout.errors import ConfigError, did_you_mean
from turnout.journal.load import Loaded
from turnout.reproduce.claims import Claim
from turnout.study import Study, load_study

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)
PACKAGE = "turnout.reproduce.studies"
ALONE = "study"  # what the only cell of a study is called
Claims = Callable[[Mapping[str, Loaded]], list[Claim]]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a module of claims says of its study.

    A cell is the study file with some settings changed, and is run as a study of its own: for tables whose cells differ
    in more than an arm should. Settings are written as for `turnout run --set`; a scale's come after a cell's.
    """

    paper: str  # authors, year, table or figure
    what: str  # one line
    small: str  # how long the small scale takes on two cores, as measured
    needs: tuple[str, ...] = ()  # data sets that are not made here
    scales: Mapping[str, tuple[str, ...]]  # the settings that each scale changes
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {ALONE: ()})
    larger: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by cell: what only it changes at paper scale
    notes: tuple[str, ...] = ()  # what was left out of the paper, what was measured about it, and what was reduced

    def __post_init__(self) -> None:
        if not self.larger.keys() <= self.cells.keys():
            raise ConfigError(
                f"A shipped study has no cell {', '.join(sorted(self.larger.keys() - self.cells.keys()))}."
            )
        if tuple(self.scales) != SCALES:
            raise ConfigError(f"A shipped study has the scales {', '.join(SCALES)}; got {', '.join(self.scales)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One shipped study."""

    name: str
    file: Path
    about: About
    claims: Claims

    def studies(self, scale: str, seeds: int | None = None) -> dict[str, Study]:
        """Return what is run at a scale, by cell."""
        if scale not in SCALES:
            raise ConfigError(f"There is no scale {scale!r}.{did_you_mean(scale, list(SCALES))} Choose {_or(SCALES)}.")
        chosen = [] if seeds is None else [f"seeds={seeds}"]
        return {
            cell: load_study(self.file, [f"name={self._called(cell)}", *settings, *self._scaled(cell, scale), *chosen])
            for cell, settings in self.about.cells.items()
        }

    def _scaled(self, cell: str, scale: str) -> tuple[str, ...]:
        return self.about.scales[scale] + (self.about.larger.get(cell, ()) if scale == "paper" else ())

    def _called(self, cell: str) -> str:
        return self.name if cell == ALONE else f"{self.name} {cell}"


def shipped() -> dict[str, Shipped]:
    """Return every shipped study by name."""
    folder = Path(str(resources.files(PACKAGE)))
    return {file.stem.replace("_", "-"): _made(file) for file in sorted(folder.glob("*.toml"))}


def shipped_named(name: str) -> Shipped:
    """Return the shipped study of this name."""
    folder = Path(str(resources.files(PACKAGE)))
    file = folder / f"{name.replace('-', '_')}.toml"
    names = [each.stem.replace("_", "-") for each in sorted(folder.glob("*.toml"))]
    if name not in names:
        raise ConfigError(
            f"There is no shipped study {name!r}.{did_you_mean(name, names)} See `turnout reproduce` for all of them."
        )
    return _made(file)


def _made(file: Path) -> Shipped:
    module = import_module(f"{PACKAGE}.{file.stem}")
    return Shipped(name=file.stem.replace("_", "-"), file=file, about=module.ABOUT, claims=module.claims)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
