"""`turnout power`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from turnout.analysis.seed_plan import seed_plan
from turnout.cli.claim_plans import print_claim_plans
from turnout.cli.json_output import json_text
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.number_format import plural
from turnout.reproduce.running import RESULT
from turnout.study import load_study

FIRST_PILOT_SEED = 1000  # so that the seeds of the study itself stay fresh
PILOT_SEEDS = 5  # of a study file, where no number is given


def print_seed_plan(
    sources: Sequence[Path],
    metric: str | None,
    delta: float | None,
    pilot: int | None,
    *,
    allow_code: bool,
    as_json: bool,
) -> None:
    """Print how many seeds the arms or claims need.

    Args:
        sources: output folders of `turnout run`, results of `turnout reproduce`, or one study file, of which pilot
            seeds are run first.
        metric: the metric to plan for; None takes accuracy, or else loss.
        delta: the difference to tell: points of a share, else in the unit of the metric; None is one point.
        pilot: number of pilot seeds of a study file; None is PILOT_SEEDS.
        allow_code: whether a study file may name code of other packages.
        as_json: print JSON.
    """
    results = [file for file in map(_result, sources) if file is not None]
    folders = [folder for source in sources if _result(source) is None and (folder := _folder(source)) is not None]
    files = len(sources) - len(results) - len(folders)
    if [len(results), len(folders), files].count(0) < 2 or files > 1:
        raise ConfigError(_mixture(len(folders), len(results), files))
    if results:
        _refuse_options({"--metric": metric, "--delta": delta, "--pilot": pilot})
        print_claim_plans(results, as_json=as_json)
        return
    seeds = PILOT_SEEDS if pilot is None else pilot
    how = {"allow_code": allow_code, "as_json": as_json}
    loaded = [load(folder) for folder in folders] if folders else [_pilot_runs(sources[0], seeds, **how)]
    plan = seed_plan(loaded, metric=metric, delta=delta)
    typer.echo(json_text(plan.as_dict()) if as_json else f"{plan.verdict()}\n\n{plan.text()}")


def _mixture(folders: int, results: int, files: int) -> str:
    kinds = {"output folder": folders, "result": results, "study file": files}
    got = " and ".join(plural(count, kind) for kind, count in kinds.items() if count)
    return (
        "power takes output folders of turnout run, results of turnout reproduce, or one study file; "
        f"got {got}. Name one kind."
    )


def _refuse_options(options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ConfigError(
            "power judges results of turnout reproduce by their claims, which have measures and thresholds of their "
            f"own; got {' and '.join(given)}. Leave {'it' if len(given) == 1 else 'them'} out, or name output folders "
            "of turnout run or a study file."
        )


def _pilot_runs(file: Path, count: int, *, allow_code: bool, as_json: bool) -> Loaded:
    study = load_study(str(file), allow_code=allow_code)
    seeds = tuple(range(FIRST_PILOT_SEED, FIRST_PILOT_SEED + count))
    pilots = replace(study, seeds=seeds, until_clear=None, target=None, track=())
    if not as_json:
        typer.echo(f"{study.name}: running pilot seeds {seeds[0]} to {seeds[-1]}, which the study itself does not use")
    return pilots.run(progress=not as_json).loaded


def _result(source: Path) -> Path | None:
    """Return the result file that a source is or holds; None if it is no result of `turnout reproduce`."""
    folder = _folder(source)
    if folder is None:
        return source if source.suffix == Path(RESULT).suffix else None
    return folder / RESULT if (folder / RESULT).is_file() else None


def _folder(source: Path) -> Path | None:
    inside = Path("runs") / source
    return source if source.is_dir() else inside if inside.is_dir() else None
