"""`turnout power`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from turnout.analysis.seed_plan import seed_plan
from turnout.cli.json_output import json_text
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.study import load_study

FIRST_PILOT_SEED = 1000  # so that the seeds of the study itself stay fresh


def print_seed_plan(
    sources: Sequence[Path], metric: str | None, delta: float | None, pilot: int, *, allow_code: bool, as_json: bool
) -> None:
    """Print how many seeds the arms need.

    Args:
        sources: output folders of `turnout run`, or one study file, of which pilot seeds are run first.
        metric: the metric to plan for; None takes accuracy, or else loss.
        delta: the difference to tell: points of a share, else in the unit of the metric; None is one point.
        pilot: number of pilot seeds of a study file.
        allow_code: whether a study file may name code of other packages.
        as_json: print JSON.
    """
    loaded = _runs(sources, pilot, allow_code=allow_code, as_json=as_json)
    plan = seed_plan(loaded, metric=metric, delta=delta)
    typer.echo(json_text(plan.as_dict()) if as_json else f"{plan.verdict()}\n\n{plan.text()}")


def _runs(sources: Sequence[Path], pilot: int, *, allow_code: bool, as_json: bool) -> list[Loaded]:
    folders = [_folder(source) for source in sources]
    known = [folder for folder in folders if folder is not None]
    if len(known) == len(sources):
        return [load(folder) for folder in known]
    if len(sources) > 1:
        raise ConfigError("power takes output folders of turnout run, or one study file; got a mixture. Name one kind.")
    study = load_study(str(sources[0]), allow_code=allow_code)
    seeds = tuple(range(FIRST_PILOT_SEED, FIRST_PILOT_SEED + pilot))
    pilots = replace(study, seeds=seeds, until_clear=None, target=None, track=())
    if not as_json:
        typer.echo(f"{study.name}: running pilot seeds {seeds[0]} to {seeds[-1]}, which the study itself does not use")
    return [pilots.run(progress=not as_json).loaded]


def _folder(source: Path) -> Path | None:
    inside = Path("runs") / source
    return source if source.is_dir() else inside if inside.is_dir() else None
