"""The shipped studies: each is a study file and a module of claims with the same name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module, resources
from pathlib import Path
from typing import Literal, get_args

from turnout.analysis.until_clear import UntilClear
from turnout.errors import ConfigError, did_you_mean
from turnout.journal.load import Loaded
from turnout.reproduce.claims import MOST_PRIMARY, Claim
from turnout.study import Study, load_study

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)
PACKAGE = "turnout.reproduce.studies"
FIRST_SEED = 100  # seeds below were seen while claims were chosen, and those from 1000 on while settings were tuned
ONLY_CELL = "study"  # name of the only cell of a study
Claims = Callable[[Mapping[str, Loaded]], list[Claim]]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The description of a shipped study in its module of claims.

    A cell is the study file with some settings changed, run as a separate study: for tables with cells that differ in
    more than an arm should. Settings have the form of `turnout run --set`; those of a scale come after those of a cell.
    """

    paper: str  # authors, year, table or figure
    what: str  # one line
    primary: tuple[tuple[str, ...], ...]  # ids of the paper's own main claims, by family: corrected for together
    most: int = 0  # seeds are added up to this number until the primary claims are settled; 0: the seeds are fixed
    first_seed: int = FIRST_SEED  # larger where `most` was chosen with `turnout power` on the seeds before
    caveat: str = ""  # first line where the study is too small for the paper's effect, and where the effect was seen
    found: str = ""  # one sentence of what was found, for the summary; left out: made from the verdicts
    small: str  # measured duration of the small scale on two cores
    needs: tuple[str, ...] = ()  # data sets to download
    scales: Mapping[str, tuple[str, ...]]  # the settings that each scale changes
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {ONLY_CELL: ()})
    larger: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by cell: further settings at paper scale
    notes: tuple[str, ...] = ()  # what was left out or reduced, and other remarks

    def __post_init__(self) -> None:
        if sum(map(len, self.primary)) > MOST_PRIMARY:
            raise ConfigError(
                f"A shipped study has at most {MOST_PRIMARY} primary claims; got {sum(map(len, self.primary))}. "
                "Keep the paper's main ones."
            )
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
        """Return the studies of a scale, by cell; without a number of seeds, more are added up to the study's most."""
        if scale not in SCALES:
            raise ConfigError(f"There is no scale {scale!r}.{did_you_mean(scale, list(SCALES))} Choose {_or(SCALES)}.")
        return {
            cell: self._fresh(
                load_study(self.file, [f"name={self._called(cell)}", *settings, *self._scaled(cell, scale)]),
                seeds,
                self.about.most if seeds is None and scale != "smoke" else 0,
            )
            for cell, settings in self.about.cells.items()
        }

    def _fresh(self, study: Study, seeds: int | None, most: int) -> Study:
        """Return a study with fresh seeds: as many as asked for or as it has, and more until its claims are settled."""
        count = len(study.all_seeds) if seeds is None else seeds
        rule = UntilClear(most=most) if most > count else None
        first = self.about.first_seed
        return replace(study, seeds=tuple(range(first, first + count)), until_clear=rule)

    def _scaled(self, cell: str, scale: str) -> tuple[str, ...]:
        return self.about.scales[scale] + (self.about.larger.get(cell, ()) if scale == "paper" else ())

    def _called(self, cell: str) -> str:
        return self.name if cell == ONLY_CELL else f"{self.name} {cell}"


def shipped() -> dict[str, Shipped]:
    """Return every shipped study by name."""
    folder = Path(str(resources.files(PACKAGE)))
    return {file.stem.replace("_", "-"): _load(file) for file in sorted(folder.glob("*.toml"))}


def shipped_named(name: str) -> Shipped:
    """Return the shipped study of this name."""
    folder = Path(str(resources.files(PACKAGE)))
    file = folder / f"{name.replace('-', '_')}.toml"
    names = [each.stem.replace("_", "-") for each in sorted(folder.glob("*.toml"))]
    if name not in names:
        raise ConfigError(
            f"There is no shipped study {name!r}.{did_you_mean(name, names)} See `turnout reproduce` for all of them."
        )
    return _load(file)


def _load(file: Path) -> Shipped:
    module = import_module(f"{PACKAGE}.{file.stem}")
    return Shipped(name=file.stem.replace("_", "-"), file=file, about=module.ABOUT, claims=module.claims)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
